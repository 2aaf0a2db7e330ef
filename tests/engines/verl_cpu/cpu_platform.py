"""A verl platform whose device is the CPU, for tests on machines without a GPU. Not part of the product.

verl asks its platform for device counts, memory and streams; on a CPU most answers are constants. Ray hands
out logical GPUs (ray.init(num_gpus=ranks)), so that placement works as it does on a real node.
"""

import contextlib
import types

import torch
import verl.utils.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform


class _DeviceModule(types.ModuleType):
    """Stands where torch.cuda stands; what a CPU has no notion of answers with a constant."""

    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: "cpu")
    get_device_name = staticmethod(lambda *_: "CPU")
    mem_get_info = staticmethod(lambda *_: (1 << 34, 1 << 34))
    get_rng_state = staticmethod(lambda *_, **__: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_, **__: torch.set_rng_state(state))
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
            return lambda *_, **__: None
        if name.startswith(("memory_", "max_memory_")):
            return lambda *_, **__: 0
        return getattr(torch.cpu, name)


_DEVICE = _DeviceModule("cpu_device")


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _DEVICE)

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


set_platform(CpuPlatform())

# verl builds "cpu:gloo,{device}:{backend}", which names the CPU twice here and is refused by torch.
_initialize = verl.utils.distributed.initialize_global_process_group_ray
verl.utils.distributed.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: (
    _initialize(timeout_second=timeout_second, backend=backend or "cpu:gloo")
)
