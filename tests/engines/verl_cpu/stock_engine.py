"""A worker that lacks the plug-in's engine, for the test of the guard: verl's own engine stands in its
place.
"""

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

_lookup = EngineRegistry.get_engine_cls.__func__


@classmethod
def _stock(cls, model_type, backend):
    found = _lookup(cls, model_type, backend)
    return FSDPEngineWithLMHead if model_type == "language_model" else found


EngineRegistry.get_engine_cls = _stock
