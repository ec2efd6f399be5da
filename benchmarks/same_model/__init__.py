"""One training in five forms: functions, a LightningModule, a Trainer, an Accelerate loop and a bare command."""
