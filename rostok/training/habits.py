"""Names of settings in nanoGPT, Hugging Face and elsewhere, and what to type here instead.

    answer("max_steps")     # "training is told in tokens: tokens=N, ..."; None for a name that is not known

The last part of a dotted name is enough: `model.block_size` is answered as `block_size`.
"""

ANSWERS = {
    "max_steps max_iters steps num_steps total_steps iterations n_steps train_steps": (
        "the length of a run is told in tokens: tokens=N, which is steps x batch x accumulate x context"
    ),
    "epochs epoch num_epochs num_train_epochs n_epochs max_epochs": (
        "the length of a run is told in tokens: tokens=N; prepare.py says how many the text has"
    ),
    "learning_rate lr max_lr": "the rate is optim.lr; the blocks' matrices have optim.muon_lr with optim.kind=muon",
    "min_lr lr_min": "the rate at the end is schedule.final, as a share of the peak: schedule.final=0.1",
    "warmup warmup_iters num_warmup_steps warmup_steps": "the warm-up is schedule.warmup_steps",
    "warmup_ratio warmup_fraction": "the warm-up is told in steps: schedule.warmup_steps",
    "lr_scheduler_type lr_scheduler scheduler lr_schedule decay_lr lr_decay_iters": (
        "the course of the rate is schedule.kind: constant, linear, cosine or wsd"
    ),
    "optimizer optimizer_type optim_type": "the optimizer is optim.kind: adamw or muon",
    "betas": "they are two settings: optim.beta1 and optim.beta2",
    "grad_clip max_grad_norm clip_grad_norm gradient_clip_val clip_grad": "it is optim.clip",
    "momentum": "Muon's is optim.muon_momentum, AdamW's are optim.beta1 and optim.beta2",
    "block_size seq_len seq_length sequence_length max_seq_len max_seq_length n_ctx context_length max_length "
    "ctx_len n_positions max_position_embeddings": "it is model.context",
    "n_embd n_embed embed_dim hidden_size hidden_dim dim emb_dim width": "it is model.d_model",
    "n_layers num_layers num_hidden_layers layers depth": "it is model.n_layer",
    "n_heads num_heads num_attention_heads heads": "it is model.n_head",
    "n_kv_heads num_key_value_heads n_query_groups": "it is model.n_kv_head",
    "intermediate_size ffn_dim d_ff mlp_dim ffn_hidden_size": "it is model.d_mlp",
    "tie_weights tie_word_embeddings weight_tying": "it is model.tied",
    "dropout attn_dropout resid_dropout embd_dropout attention_dropout hidden_dropout": (
        "there is no dropout: against learning by heart use early_stop=4, more text or a smaller model"
    ),
    "bias use_bias qkv_bias attention_bias": "there are no biases: the model is built as Qwen3 is",
    "model_type architecture arch": "it is model.kind: gpt or window-mlp",
    "batch_size micro_batch_size per_device_train_batch_size train_batch_size bs": (
        "it is batch, rows of context tokens in one forward pass; batch x accumulate make a step"
    ),
    "gradient_accumulation_steps grad_accum accumulate_grad_batches grad_accum_steps accumulation_steps": (
        "it is accumulate"
    ),
    "eval_interval eval_steps val_every eval_freq evaluation_strategy val_check_interval": "it is eval_every, in steps",
    "eval_iters eval_batches limit_val_batches": "it is eval_rows, rows of context tokens",
    "save_steps save_interval checkpoint_every checkpoint_interval save_freq": "it is save_every, in steps",
    "save_total_limit keep_last max_checkpoints": "it is keep",
    "logging_steps log_interval log_freq": "it is log_every, in steps",
    "patience early_stopping early_stopping_patience": "it is early_stop, in evaluations",
    "wandb wandb_log use_wandb wandb_project wandb_run_name report_to": (
        "it is not there: tensorboard=true writes what W&B reads, see docs/tools.md"
    ),
    "gpu gpus cuda use_cuda use_gpu accelerator devices no_cuda": (
        "it is runtime.device=cuda; auto takes the GPU by itself; for several see docs/distributed.md"
    ),
    "fp16 bf16 precision mixed_precision amp torch_dtype": "it is runtime.dtype: fp32, bf16 or fp16",
    "torch_compile": "it is runtime.compile: auto, always or never",
    "num_workers dataloader_num_workers num_threads n_threads": "it is runtime.threads; rows are read without workers",
    "output_dir out_dir save_dir checkpoint_dir run_name exp_name": "the run is the folder OUT/NAME: out= and name=",
    "dataset data_dir data_path train_file train_data dataset_name input_file": (
        "prepare.py makes a folder of any text; then it is data.path"
    ),
    "val_size valid_share val_split validation_split": "prepare.py --valid-share divides the text",
    "tokenizer tokenizer_name vocab vocabulary": "prepare.py makes the tokenizer: --vocab N or --tokenizer NAME",
    "vocab_size": "it comes from the data: prepare.py --vocab N",
    "resume resume_from resume_from_checkpoint resume_training": "the same command again goes on; --fresh begins again",
    "pretrained init_model pretrained_model model_name_or_path checkpoint finetune": (
        "it is init_from=RUN, a run of Rostok or an imported one"
    ),
    "lora lora_r use_lora peft": "it is not there: export the run and use PEFT, see docs/tools.md",
    "prompt sample_prompt temperature top_k top_p": "sample.py RUN takes it: --prompt, --temperature, ...",
    "random_seed manual_seed": "it is seed",
    "time_limit max_time max_minutes": "it is schedule.max_minutes",
    "max_tokens train_tokens total_tokens num_tokens": "it is tokens",
    "gradient_checkpointing activation_checkpointing": "it is not there: lower batch and raise accumulate for memory",
    "flash flash_attn flash_attention attn_implementation": "attention always runs as torch's fused kernel",
}

# values, likewise
VALUES = {
    "gpu": "cuda",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "adam": "adamw",
}


def answer(name: str) -> str | None:
    """What to type here for a setting that has this name elsewhere."""
    last = name.rsplit(".", 1)[-1].lower().replace("-", "_")
    return next((told for names, told in ANSWERS.items() if last in names.split()), None)
