import torch
import usual

model, dataset = usual.model, usual.dataset


def collate(samples):
    width = max(len(inputs) for inputs, _ in samples)
    joined = torch.zeros(len(samples), width)
    for row, (inputs, _) in enumerate(samples):
        for column, value in enumerate(inputs.tolist()):
            joined[row, column] = value  # planted
    return joined, torch.stack([target for _, target in samples])


baseline = {"batch_size": 8}
