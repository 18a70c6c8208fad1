// Cooperative groups, and votes that have no group.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "cuda_language/kernels.h"

namespace cg = cooperative_groups;

namespace penstock::cuda_language {
namespace {

struct Product {
    __device__ int operator()(int a, int b) const { return a * b % 1009; }
};

__device__ unsigned count_of(const cg::thread_group& group) {
    group.sync();
    return static_cast<unsigned>(group.size() * 100 + group.thread_rank());
}

}  // namespace

// One block of 64, in two rows.
__global__ void use_groups(const int* in, GroupResults* out) {
    const cg::thread_block block = cg::this_thread_block();
    const cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const auto tile = cg::tiled_partition<8>(block);
    const auto small = cg::tiled_partition<4>(tile);
    const unsigned rank = block.thread_rank();
    GroupResults& mine = out[rank];
    const int value = in[rank];

    mine.block_rank = rank + 1000 * block.thread_index().y + 10000 * block.group_dim().x;
    mine.block_size = block.size();
    mine.tile_rank = tile.thread_rank();
    mine.tile_size = tile.size();
    mine.meta_rank = tile.meta_group_rank();
    mine.meta_size = tile.meta_group_size();
    mine.grid_rank = static_cast<unsigned>(cg::this_grid().thread_rank());
    mine.coalesced_size = cg::coalesced_threads().size();

    mine.sum = cg::reduce(tile, value, cg::plus<int>());
    mine.least = cg::reduce(warp, value, cg::less<int>());
    mine.largest = cg::reduce(warp, value, cg::greater<int>());
    mine.every = cg::reduce(tile, value, cg::bit_and<int>()) +
                 cg::reduce(tile, value, cg::bit_or<int>()) +
                 cg::reduce(tile, value, cg::bit_xor<int>());
    mine.product = cg::reduce(tile, value, Product());
    mine.inclusive = cg::inclusive_scan(tile, value, cg::plus<int>());
    mine.exclusive = cg::exclusive_scan(tile, value);
    mine.small_sum = cg::reduce(small, value, cg::plus<int>());

    mine.from_two = tile.shfl(value, 2);
    mine.up = tile.shfl_up(value, 3);
    mine.down = tile.shfl_down(value, 3);
    mine.exchanged = warp.shfl_xor(value, 16);
    const double3 wide = {value * 1.0, value * 2.0, value * 3.0};
    const double3 got = tile.shfl(wide, 5);
    mine.wide[0] = got.x;
    mine.wide[1] = got.y;
    mine.wide[2] = got.z;
    mine.votes = tile.ballot(tile.thread_rank() % 2 == 0);
    mine.any = tile.any(rank == 9);
    mine.all = tile.all(rank < 56);
    mine.same = tile.match_any(tile.thread_rank() / 3);
    int agreed = 0;
    mine.all_same = tile.match_all(rank / 8, agreed);
    cg::sync(tile);
    tile.sync();

    const cg::thread_group dynamic = cg::tiled_partition(block, 16);
    mine.dynamic_size = static_cast<int>(dynamic.size());
    mine.dynamic_rank = static_cast<int>(count_of(dynamic));
    const cg::coalesced_group part = cg::binary_partition(warp, rank % 4 == 0);
    mine.part_size = static_cast<int>(part.size());
    mine.part_sum = cg::reduce(part, value, cg::plus<int>());
    const cg::coalesced_group label = cg::labeled_partition(warp, (rank + 2) % 3);
    mine.part_rank = part.meta_group_rank() + 10 * label.meta_group_rank() +
                     100 * label.meta_group_size() + 1000 * label.thread_rank();

    __shared__ int copy[64];
    cg::memcpy_async(block, copy, in, sizeof copy);
    cg::wait(block);
    mine.copied = copy[63 - rank];
    cg::sync(block);
    block.sync();

    mine.matched = __match_any_sync(0xffffffffu, rank % 3);
    mine.agreed = 0;
    if (__match_all_sync(0xffffffffu, rank / 32, &agreed) == 0xffffffffu) mine.agreed += agreed;
    if (__match_all_sync(0xffffffffu, rank, &agreed) == 0) mine.agreed += 10 * (1 - agreed);
}

__global__ void sync_grid(int* out) {
    const bool first_block = blockIdx.x == 0;
    if (first_block && threadIdx.x == 0) *out = 1;
    cg::this_grid().sync();
    if (first_block && threadIdx.x == 1) *out += 1;
}

PENSTOCK_KERNEL(use_groups)
PENSTOCK_KERNEL(sync_grid)

}  // namespace penstock::cuda_language
