#include "bench/preempt/cases.h"

#include "preemption/pathfinder.h"
#include "preemption/srad.h"

namespace penstock::bench {

void add_mix(MixRig* rig, workloads::ProductForm form, bool smoke) {
    for (size_t i = 0; i < kKernelsMax; ++i) {
        workloads::ProductOptions product;
        product.seed = i + 1;
        product.form = form;
        product.order = smoke ? 64 : 256;
        product.tile = 64;
        rig->add(make_product(rig->site(), product), "product");
    }
    workloads::SradOptions srad;
    srad.tile_columns = srad.tile_rows = smoke ? 4 : 32;
    srad.blocks = smoke ? 4 : 256;
    srad.iterations = smoke ? 1 : 4;
    rig->add(make_srad(rig->site(), srad), "SRAD");
    workloads::PathOptions path;
    path.columns = smoke ? 1000 : 20000;
    path.rows = smoke ? 21 : 201;
    rig->add(make_path(rig->site(), path), "PathFinder");
}

std::string describe_mix() {
    return "products of order 256 in 16 blocks, SRAD of 512 x 512 cells in 4 iterations, "
           "PathFinder "
           "of 20,000 x 200; helping off, 4 workers, pages of 8 KiB, no readahead";
}

}  // namespace penstock::bench
