"""The system `notifications`: messages by push, SMS, e-mail and webhook, now or at their time."""
