# long: the one schema, a line or two a key
"""The sections of the configuration: every field with its one default and what it means.

A section whose name ends in `Settings` holds what `bipace train` reads and adapters read too: features and
penalty all of them, environment and prompt those that play the episodes themselves. The one that extends it
adds what only our own trainer has, because an engine has a key of its own for it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bipace.core.actions import ACTION_KEYS, RefusedActions

__all__ = [
    "PAIRS",
    "ActorConfig",
    "EnvConfig",
    "EnvSettings",
    "FeatureConfig",
    "FeatureSettings",
    "PromptConfig",
    "PromptSettings",
    "RolloutConfig",
    "RunConfig",
    "Section",
    "UpdateConfig",
    "UpdateSettings",
]

PAIRS = {"1.5B": (0.61, 0.05), "7B": (0.75, 0.10)}
"""The paper's pairs by model size: the layer, as a fraction of the depth, and the radius chosen at it."""


class Section(BaseModel):
    """Base of every section: unknown keys and values of another type are refused ("no" is not false)."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class EnvSettings(Section):
    """Where the agent acts, and what it is paid."""

    suite: str = Field(
        default="textcraft",
        description="a shipped suite (bipace envs), module:attribute or path/to/file.py:attribute, on "
        "every node",
    )
    max_steps: int | None = Field(
        default=None, ge=1, description="horizon in model calls; default: the suite's own"
    )
    reward_scale: float = Field(
        default=10.0, gt=0, description="the environment's reward 1.0 counts as this much"
    )
    reward: Literal["score", "success"] = Field(
        default="score",
        description="score: what the environment pays, also for part of a task; success: 1 for a solved task "
        "alone (verl-agent's WebShop)",
    )


class EnvConfig(EnvSettings):
    """Where the agent acts, and which tasks it is given."""

    split: str | None = Field(
        default=None, description="split that training tasks come from; default: the suite's first"
    )
    panel: str | None = Field(
        default=None,
        description="fixed task list for validation, which chooses the best checkpoint; default: the suite's",
    )
    held_out: tuple[str, ...] | None = Field(
        default=None, strict=False, description="panels reported beside it; default: the suite's"
    )
    step_seconds: float | None = Field(
        default=None,
        gt=0,
        description="time limit of one reset or step; when set, every episode's environment runs in a "
        "process of its own, so that one that hangs or dies costs its episode alone; default: no limit, in "
        "this process",
    )


class ActorConfig(Section):
    """The policy: a folder with a Hugging Face causal language model."""

    folder: str = Field(
        default="textcraft-small",
        description="a shipped actor or a fetched model (`bipace models`), or a folder",
    )
    device: str = Field(default="cpu", description="cpu or cuda")
    autocast: bool = Field(default=False, description="run the update's forward in bfloat16 autocast")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="of the weights; bfloat16 halves their memory and trains with LoRA only",
    )
    checkpointing: bool = Field(
        default=False,
        description="gradient checkpointing: keep each block's input alone, a third more compute",
    )
    lora_rank: int = Field(
        default=0, ge=0, description="train low-rank adapters of this rank; 0: all weights"
    )
    lora_alpha: float = Field(default=32.0, gt=0, description="adapters count alpha / rank times")
    lora_targets: tuple[str, ...] = Field(
        default=("all-linear",),
        min_length=1,
        strict=False,
        description="linear layers that get an adapter, e.g. q_proj, v_proj",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="CPU threads of the model; default: OMP_NUM_THREADS, else one below 10 M parameters or "
        "where threads would spin while they wait, else all cores",
    )
    shards: int = Field(
        default=1,
        ge=1,
        le=64,
        description="parts that rollouts and mini-batches are computed in, each with its own random numbers; "
        "their number decides the bits of a run",
    )
    processes: int | None = Field(
        default=None,
        ge=1,
        description="processes that compute the shards side by side; any number gives the same bits; "
        "default: one a shard, as far as the cores go",
    )


class PromptSettings(Section):
    """What the policy reads and how it answers (`bipace.rollout.prompts`)."""

    style: Literal["transcript", "window"] = Field(
        default="transcript", description="one growing chat, or one message a step"
    )
    tagged: bool = Field(default=False, description="answers use <think> and <action> tags")
    lowercase: bool = Field(
        default=False, description="lower-case an action before the environment sees it (verl-agent's)"
    )
    strict: bool = Field(
        default=False,
        description="with tagged: an answer without a <think> pair or with a Chinese character pays the "
        "penalty too (verl-agent's)",
    )
    instructions: bool = Field(default=False, description="put the suite's rules at the head of the prompt")
    history_length: int = Field(
        default=2, ge=0, description="past (observation, action) pairs in window style"
    )


class PromptConfig(PromptSettings):
    """What the policy reads and how it answers, and the limits on both."""

    max_new_tokens: int = Field(default=28, ge=1, description="response limit in tokens")
    max_tokens: int = Field(
        default=1024, ge=16, description="context limit in tokens, prompt and responses together"
    )


class RolloutConfig(Section):
    """How many episodes an iteration plays."""

    tasks: int = Field(default=16, ge=1, description="prompt groups per iteration")
    group_size: int = Field(default=8, ge=1, description="trajectories per prompt group (G)")
    order: Literal["draws", "passes"] = Field(
        default="draws", description="tasks drawn anew each iteration, or shuffled passes through the split"
    )
    temperature: float = Field(default=1.0, gt=0, description="sampling temperature in training")
    parallel: int = Field(default=256, ge=1, description="episodes decoded side by side; bounds memory")
    engine: Literal["hf", "vllm"] = Field(
        default="hf",
        description="what samples: hf, the actor itself; vllm, a copy of it in vLLM on the same GPU "
        "(bipace[vllm])",
    )
    engine_memory: float = Field(
        default=0.4, gt=0, lt=1, description="share of the GPU's memory that vllm takes"
    )


class FeatureSettings(Section):
    """The features that recipes compare (a hidden state at the last prompt token), and the action key."""

    layer: int | float = Field(
        default=PAIRS["1.5B"][0],
        description="index into hidden_states (negative allowed) or fraction of the depth; the default "
        "belongs to the default credit.eps: the paper's pair for its 1.5B model",
    )
    calibrate_every: int = Field(
        default=1,
        ge=0,
        description='iterations between choices of credit.eps="auto"; 0: once, in the first ("calibrate": '
        "always once)",
    )
    action_key: str = Field(
        default="executed",
        description="when two actions count as equal: executed, where the environment did the same; "
        + ", ".join(name for name in ACTION_KEYS if name != "executed")
        + " read the response",
    )
    refused_actions: RefusedActions = Field(
        default="many",
        description="under action_key=executed, refused actions are told apart by their text (many) or are "
        "all one",
    )

    @field_validator("layer")
    @classmethod
    def _a_layer(cls, value: int | float) -> int | float:
        if isinstance(value, float) and not 0 < value < 1:
            raise ValueError("a whole number, or a fraction between 0 and 1")
        return value

    @field_validator("action_key")
    @classmethod
    def _known_key(cls, value: str) -> str:
        if value not in ACTION_KEYS:
            raise ValueError(f"one of {', '.join(ACTION_KEYS)}")
        return value


class FeatureConfig(FeatureSettings):
    """The state features, and which forward gives them."""

    source: Literal["rollout", "shared", "separate"] = Field(
        default="rollout",
        description="which forward gives them: rollout, the one that sampled the response (its probabilities "
        "are then the old ones); shared, the one that scores finished trajectories anew; separate, one more",
    )


class UpdateSettings(Section):
    """What no engine's update has a key for."""

    invalid_action_penalty: float = Field(
        default=0.1, ge=0, description="off the advantage of a response without valid form"
    )


class UpdateConfig(UpdateSettings):
    """The policy gradient step: PPO for a small actor; the presets named qwen set it as verl-agent does.

    Attributes:
        dual_clip: bound on the ratio where the advantage is negative; no key, 3 in every published run.
        max_skipped: mini-batches skipped for a non-finite loss or gradient, over the whole run, before it
            stops.
    """

    dual_clip: ClassVar[float] = 3.0
    max_skipped: ClassVar[int] = 3

    lr: float = Field(default=2e-4, gt=0, description="AdamW learning rate")
    lr_decay: int = Field(
        default=0, ge=0, description="iterations over which lr falls to a tenth, linearly; 0: constant"
    )
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW weight decay")
    epochs: int = Field(default=1, ge=1, description="passes over an iteration's rollouts")
    minibatches: int = Field(default=4, ge=1, description="optimizer steps per pass")
    minibatch_rows: int | None = Field(
        default=None,
        ge=1,
        description="at most this many sequences an optimizer step, in place of minibatches",
    )
    micro_tokens: int = Field(
        default=4096,
        ge=1,
        description="padded tokens per forward, same result: 4096 stays in a CPU's cache, a GPU wants more",
    )
    clip: float = Field(default=0.2, gt=0, description="PPO clip range")
    kl_loss_coef: float = Field(
        default=0.0, ge=0, description="k3 KL to the starting policy; verl-agent: 0.01"
    )
    entropy_coef: float = Field(default=0.0, ge=0, description="bonus per nat of the token entropy")
    grad_clip: float = Field(default=1.0, gt=0, description="gradient norm limit")

    def parts(self, sequences: int) -> int:
        """Mini-batches that this many sequences are split into, as evenly as they go."""
        return self.minibatches if self.minibatch_rows is None else -(-sequences // self.minibatch_rows)


class RunConfig(Section):
    """How long, how often, where."""

    iterations: int = Field(default=150, ge=1, description="rollouts and updates")
    seed: int = Field(default=0, ge=0, description="one seed: tasks, sampling and shuffling follow from it")
    validate_every: int = Field(default=10, ge=1, description="iterations between validations on env.panel")
    validation_temperature: float = Field(
        default=1.0, ge=0, description="0 is greedy; verl-agent and the presets named qwen use 0.4"
    )
    save_every: int = Field(default=10, ge=1, description="iterations between checkpoints")
    save_rollouts: bool = Field(default=False, description="write every trajectory to rollouts.jsonl")
    loggers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(
        default=(),
        strict=False,
        description="trackers beside the console and metrics.jsonl: tensorboard, wandb, trackio",
    )
