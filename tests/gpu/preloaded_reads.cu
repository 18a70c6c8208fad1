// A program of plain CUDA that passes device memory to the kernel's calls on files, for a machine
// with a GPU. Run by hand, once with each form of the CUDA run-time library:
//
//     nvcc -O2 -cudart static tests/gpu/preloaded_reads.cu -o preloaded_reads
//     LD_PRELOAD=libpenstock-preload.so ./preloaded_reads FOLDER
//
// It prints a line for each case, and exits with 1 when one failed.
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kSize = (size_t{256} << 20) + 777;
int failures = 0;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void report(const char* name, bool right, double seconds = 0) {
    std::printf("%-52s %s  %.1f ms\n", name, right ? "ok" : "WRONG", seconds * 1e3);
    if (!right) ++failures;
}

// Adds 1 to each byte, `rounds` times over: a kernel that takes its time.
__global__ void add(unsigned char* bytes, size_t size, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < size;
             i += size_t{gridDim.x} * blockDim.x)
            bytes[i] += 1;
    }
}

bool equal(const unsigned char* device, const std::vector<unsigned char>& bytes, size_t size) {
    std::vector<unsigned char> host(size);
    return cudaMemcpy(host.data(), device, size, cudaMemcpyDeviceToHost) == cudaSuccess &&
           std::equal(host.begin(), host.end(), bytes.begin());
}

ssize_t read_whole(int fd, unsigned char* to) {
    size_t done = 0;
    while (done < kSize) {
        const ssize_t got = pread(fd, to + done, kSize - done, static_cast<off_t>(done));
        if (got <= 0) return got;
        done += static_cast<size_t>(got);
    }
    return static_cast<ssize_t>(done);
}

}  // namespace

int main(int count, char** words) {
    const std::string folder = count > 1 ? words[1] : "/tmp";
    const std::string path = folder + "/preloaded-in", other = folder + "/preloaded-out";
    std::vector<unsigned char> bytes(kSize);
    for (size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t done = 0; done < kSize;)
        done += static_cast<size_t>(write(fd, bytes.data() + done, kSize - done));
    unsigned char *device = nullptr, *second = nullptr, *managed = nullptr;
    cudaMalloc(&device, kSize);
    cudaMalloc(&second, kSize);
    cudaMallocManaged(&managed, 1 << 20);

    double begun = now();
    const bool first = read_whole(fd, device) == static_cast<ssize_t>(kSize);
    report("pread of 256 MiB, the first", first && equal(device, bytes, kSize), now() - begun);
    if (!first) return std::printf("%s\n", strerror(errno)), 1;
    std::vector<unsigned char> host(kSize);
    for (int round = 0; round < 3; ++round) {
        begun = now();
        read_whole(fd, device);
        const double ours = now() - begun;
        begun = now();
        read_whole(fd, host.data());
        cudaMemcpy(second, host.data(), kSize, cudaMemcpyHostToDevice);
        const double plain = now() - begun;
        std::printf("  pread into device memory %.1f ms; pread and cudaMemcpy %.1f ms\n",
                    ours * 1e3, plain * 1e3);
    }

    cudaMemset(device, 0, kSize);
    add<<<64, 256>>>(device, kSize, 16);  // still runs when the read begins
    begun = now();
    read_whole(fd, device);
    report("a read behind a kernel of the default stream", equal(device, bytes, kSize),
           now() - begun);

    int out = open(other.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    add<<<64, 256>>>(device, kSize, 16);
    begun = now();
    const bool written = pwrite(out, device, kSize, 0) == static_cast<ssize_t>(kSize);
    const double seconds = now() - begun;
    read_whole(out, host.data());
    for (unsigned char& byte : host) byte -= 16;
    report("a write behind a kernel of the default stream", written && host == bytes, seconds);

    lseek(fd, 0, SEEK_SET);
    bool right = true;
    begun = now();
    for (int i = 0; i < 1000; ++i) right = right && read(fd, device + i * 4096, 4096) == 4096;
    report("1000 reads of 4 KiB at the position",
           right && equal(device + 0, bytes, 1000 * 4096) && lseek(fd, 0, SEEK_CUR) == 1000 * 4096,
           now() - begun);

    iovec pieces[] = {{device, 5000}, {host.data(), 100}, {device + 5000, 3000}};
    right = preadv(fd, pieces, 3, 11) == 8100 && memcmp(host.data(), &bytes[5011], 100) == 0;
    cudaMemcpy(host.data(), device, 8000, cudaMemcpyDeviceToHost);
    report("preadv into device and host memory", right &&
                                                     memcmp(host.data(), &bytes[11], 5000) == 0 &&
                                                     memcmp(&host[5000], &bytes[5111], 3000) == 0);

    report("managed memory", pread(fd, managed, 1 << 20, 0) == 1 << 20 &&
                                 memcmp(managed, bytes.data(), 1 << 20) == 0);

    std::vector<std::thread> threads;  // none of them has made a call of CUDA
    std::vector<ssize_t> got(8);
    begun = now();
    for (size_t i = 0; i < 8; ++i)
        threads.emplace_back([&, i] {
            const size_t at = i * (16 << 20);
            got[i] = pread(fd, second + at, 16 << 20, static_cast<off_t>(at));
        });
    for (std::thread& thread : threads) thread.join();
    right = std::all_of(got.begin(), got.end(), [](ssize_t one) { return one == 16 << 20; });
    report("eight threads", right && equal(second, bytes, 128 << 20), now() - begun);

    unsigned char* queued = nullptr;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaMallocAsync(reinterpret_cast<void**>(&queued), 1 << 20, stream);
    cudaStreamSynchronize(stream);
    report("memory of cudaMallocAsync",
           pread(fd, queued, 1 << 20, 0) == 1 << 20 && equal(queued, bytes, 1 << 20));
    cudaFree(second);
    errno = 0;
    report("memory that was freed", pread(fd, second, 4096, 0) == -1 && errno == EFAULT);
    report("memory of nobody", pread(fd, reinterpret_cast<void*>(64), 4096, 0) == -1);
    unlink(path.c_str());
    unlink(other.c_str());
    return failures == 0 ? 0 : 1;
}
