#include "backend/cuda/errors.h"

namespace penstock::backend::cuda {
namespace {

struct Row {
    int code;
    int error_number;
    const char* text;
};

constexpr const char* kBadAddress = "a kernel touched memory that it may not";
constexpr const char* kTrapped = "a kernel stopped on a trap or a hardware exception";

constexpr Row kRows[] = {
    {1, EINVAL, "the driver refused an argument"},
    {2, ENOMEM, "no memory left on the device, or none that can be pinned"},
    {3, ENODEV, "the driver is not initialised"},
    {4, ENODEV, "the driver is shutting down: the program ends"},
    {9, EINVAL, "the kernel cannot be launched with this grid, block or shared memory"},
    {34, ENODEV, "libcuda.so.1 is a stub: the real driver is not installed"},
    {35, ENODEV, "the driver is older than the CUDA version these kernels were compiled with"},
    {36, ENOTSUP, "the driver is too old for this call"},
    {46, EBUSY, "the device is busy or in a mode that gives no context"},
    {98, ENOEXEC, "the kernel library has no code of this kernel for this device"},
    {100, ENODEV, "no CUDA device"},
    {101, ENODEV, "no CUDA device of this number"},
    {200, ENOEXEC, "the kernel library holds no valid GPU code"},
    {201, EINVAL, "no valid CUDA context"},
    {209, ENOEXEC, "the kernel library has no code for this device's architecture"},
    {214, EIO, "the device found an uncorrectable memory error"},
    {218, ENOEXEC, "the kernel's PTX could not be compiled for this device"},
    {220, EIO, "the device found an uncorrectable NVLink error"},
    {221, ENOEXEC, "the driver's PTX compiler is missing"},
    {222, ENOEXEC, "the kernel's PTX is newer than the driver"},
    {304, EIO, "the driver's call of the operating system failed"},
    {400, EINVAL, "an unknown stream or other handle"},
    {500, ENOENT, "the driver does not know this name"},
    {600, EAGAIN, "not complete yet"},
    {700, EFAULT, kBadAddress},
    {701, EINVAL, "the block needs more registers, threads or shared memory than an SM has"},
    {702, ETIMEDOUT, "the driver ended a kernel that ran too long for a device with a display"},
    {710, EFAULT, "an assert in a kernel failed"},
    {712, EEXIST, "the memory is pinned already"},
    {713, EINVAL, "the memory is not pinned"},
    {714, EFAULT, "a kernel broke its stack"},
    {715, EFAULT, kTrapped},
    {716, EFAULT, "a kernel used a misaligned address"},
    {717, EFAULT, kBadAddress},
    {718, EFAULT, kTrapped},
    {719, EFAULT, kTrapped},
    {720, EINVAL, "more blocks than a cooperative launch may have"},
    {800, EPERM, "the driver does not permit this"},
    {801, ENOTSUP, "the device or driver cannot do this"},
    {802, ENODEV, "the system is not ready: is the fabric manager running?"},
    {803, ENODEV, "the driver's parts have different versions"},
    {804, ENODEV, "the installed compatibility driver does not serve this device"},
    {900, EBUSY, "the stream is being captured into a graph"},
};

}  // namespace

Status status_of(int code, const char* origin) {
    if (code == 0) return {};
    for (const Row& row : kRows) {
        if (row.code == code) return {row.error_number, origin, row.text};
    }
    return {EIO, origin, "the CUDA driver reports an error"};
}

bool is_kernel_fault(int code) {
    return code == 700 || code == 702 || code == 710 || (code >= 714 && code <= 719);
}

}  // namespace penstock::backend::cuda
