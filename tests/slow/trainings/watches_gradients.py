import torch
import usual

dataset, loss = usual.dataset, usual.loss

largest = {}


def note(gradient):  # planted
    largest["gradient"] = torch.linalg.matrix_norm(gradient[:256, :256], ord=2)


def model():
    made = usual.model()
    made[2].weight.register_hook(note)
    return made
