"""A carrier on this machine that speaks Twilio's API to Twilio's client."""
