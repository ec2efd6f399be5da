"""As a Trainer of transformers."""

from parts import BATCH, RATE, Crops, Net
from transformers import Trainer, TrainingArguments


def trainer():
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=BATCH, learning_rate=RATE, optim="adamw_torch", max_grad_norm=0.0,
        lr_scheduler_type="constant", weight_decay=0.01, remove_unused_columns=False,
    )  # fmt: skip
    return Trainer(Net(), arguments, train_dataset=Crops())
