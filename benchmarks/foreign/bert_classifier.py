"""BertForSequenceClassification of transformers, with its own collator, as its text classification example has it."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, PreTrainedTokenizerFast

baseline = {"batch_size": 16}
words = {"[PAD]": 0, "[UNK]": 1} | {f"w{number}": number + 2 for number in range(2000)}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
collate = DataCollatorWithPadding(tokenizer)


class Texts(torch.utils.data.Dataset):
    def __init__(self):
        chance = torch.Generator().manual_seed(0)
        lengths = torch.randint(8, 96, (512,), generator=chance).tolist()
        self.texts = [
            " ".join(f"w{word}" for word in torch.randint(2000, (length,), generator=chance)) for length in lengths
        ]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return tokenizer(self.texts[index], truncation=True, max_length=128) | {"label": index % 2}


def model():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words), hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
        )
    )


def dataset():
    return Texts()


def optimizer(params):
    return torch.optim.AdamW(params, lr=5e-5)


def loss(model, batch):
    batch.pop("token_type_ids", None)
    return model(**batch).loss
