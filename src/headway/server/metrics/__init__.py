"""Metrics as Prometheus reads them: in base units, under labels whose number is bounded."""
