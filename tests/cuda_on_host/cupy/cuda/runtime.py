"""cupy.cuda.runtime: functions of the CUDA runtime, and constants of its headers."""

from cupy._device import DEVICES, MEMORY, CUDARuntimeError
from cupy._memory import host_register as hostRegister, host_unregister as hostUnregister, pool
from cupy._streams import synchronize_device as deviceSynchronize

__all__ = ["CUDARuntimeError", "deviceSynchronize", "hostRegister", "hostUnregister"]

cudaDevAttrMultiProcessorCount = 16
cudaDevAttrCanUseHostPointerForRegisteredMem = 91
cudaDevAttrPageableMemoryAccessUsesHostPageTables = 100
cudaDevAttrHostRegisterReadOnlySupported = 113

_ATTRIBUTES = {
    cudaDevAttrMultiProcessorCount: 4,
    cudaDevAttrCanUseHostPointerForRegisteredMem: 1,
    cudaDevAttrPageableMemoryAccessUsesHostPageTables: 0,
    cudaDevAttrHostRegisterReadOnlySupported: 0,  # as on most machines with a GPU on PCIe
}


def getDeviceCount() -> int:
    return DEVICES


def getDevice() -> int:
    return 0


def setDevice(device: int) -> None:
    if not 0 <= device < DEVICES:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")


def driverGetVersion() -> int:
    return 12090


def getDeviceProperties(device: int) -> dict[str, bytes | int]:
    setDevice(device)
    return {"name": b"CUDA on the host", "totalGlobalMem": MEMORY}


def deviceGetPCIBusId(device: int) -> str:
    """The address of the device, as nvidia-smi accepts it; there is no device with this one."""
    setDevice(device)
    return "0000:FF:1F.7"


def deviceGetAttribute(attrib: int, device: int) -> int:
    setDevice(device)
    if attrib not in _ATTRIBUTES:
        raise NotImplementedError(f"the stand-in provides only attributes {sorted(_ATTRIBUTES)}")
    return _ATTRIBUTES[attrib]


def memGetInfo() -> tuple[int, int]:
    """Free and total bytes."""
    return MEMORY - pool.used_bytes(), MEMORY
