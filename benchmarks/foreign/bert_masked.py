"""BertForMaskedLM with DataCollatorForLanguageModeling, as transformers' masked language modelling example has it."""

import torch
from bert_classifier import Texts, tokenizer, words
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

baseline = {"batch_size": 16}
masking = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"
)
collator = DataCollatorForLanguageModeling(masking, mlm_probability=0.15)


def collate(samples):
    return collator([{"input_ids": one["input_ids"], "attention_mask": one["attention_mask"]} for one in samples])


def model():
    return BertForMaskedLM(
        BertConfig(
            vocab_size=len(words) + 1,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
        )
    )


def dataset():
    return Texts()


def optimizer(params):
    return torch.optim.AdamW(params, lr=5e-5)


def loss(model, batch):
    return model(**batch).loss
