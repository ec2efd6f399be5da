import usual

dataset, loss = usual.dataset, usual.loss

spread = {}


def note(module, inputs, output):  # planted
    spread["median"] = output.detach().sort(dim=1).values[:, 512]


def model():
    made = usual.model()
    made[1].register_forward_hook(note)
    return made
