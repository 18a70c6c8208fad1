// The errno values that device calls return, as numbers: under nvcc kernels cannot rely on
// <cerrno>.
#pragma once

namespace penstock::device {

constexpr int kErrorBadDescriptor = 9;  // EBADF
constexpr int kErrorAgain = 11;         // EAGAIN
constexpr int kErrorNoMemory = 12;      // ENOMEM
constexpr int kErrorFault = 14;         // EFAULT
constexpr int kErrorBusy = 16;          // EBUSY
constexpr int kErrorInvalid = 22;       // EINVAL
constexpr int kErrorFileTooBig = 27;    // EFBIG
constexpr int kErrorNameTooLong = 36;   // ENAMETOOLONG
constexpr int kErrorOverflow = 75;      // EOVERFLOW

}  // namespace penstock::device
