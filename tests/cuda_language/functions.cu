// Mathematical functions, fast ones, min and max.
#include "cuda_language/kernels.h"

namespace penstock::cuda_language {

__global__ void functions(double x, double* out) {
    int i = 0;
    const float f = static_cast<float>(x);  // 0.25
    out[i++] = normcdf(x);
    out[i++] = normcdff(f);
    out[i++] = normcdfinv(x);
    out[i++] = normcdfinvf(f);
    out[i++] = erfinv(x);
    out[i++] = erfinvf(f);
    out[i++] = erfinv(-0.999);
    out[i++] = erfcinv(x);
    out[i++] = erfcinvf(f);
    out[i++] = erfcinv(1e-30);
    out[i++] = erfcinv(1.75);
    out[i++] = erfcx(x);
    out[i++] = erfcxf(f);
    out[i++] = erfcx(10.0);
    out[i++] = erfcx(1e3);
    out[i++] = sinpi(x);
    out[i++] = sinpif(f);
    out[i++] = sinpi(1e6 + 0.5);
    out[i++] = cospi(x);
    out[i++] = cospif(f);
    out[i++] = cospi(-2.5);
    out[i++] = rsqrt(x);
    out[i++] = rsqrtf(f);
    out[i++] = rcbrt(8.0);
    out[i++] = rcbrtf(8.0f);
    out[i++] = rhypot(3.0, 4.0);
    out[i++] = rhypotf(3.0f, 4.0f);
    out[i++] = norm3d(2.0, 3.0, 6.0);
    out[i++] = norm3df(2.0f, 3.0f, 6.0f);
    out[i++] = norm4d(1e200, 1e200, 1e200, 1e200);
    out[i++] = norm4df(2.0f, 4.0f, 5.0f, 6.0f);
    out[i++] = rnorm3d(2.0, 3.0, 6.0);
    out[i++] = rnorm3df(2.0f, 3.0f, 6.0f);
    out[i++] = rnorm4df(2.0f, 4.0f, 5.0f, 6.0f);
    out[i++] = cyl_bessel_i0(1.0);
    out[i++] = cyl_bessel_i1f(2.0f);
    double sine, cosine;
    sincospi(x, &sine, &cosine);
    out[i++] = 1.0 + (sine - cosine);
    sincos(x, &sine, &cosine);
    out[i++] = sine * sine + cosine * cosine;
    out[i++] = exp10(2.0) + exp10f(1.0f);
    const double three[] = {2.0, 3.0, 6.0};
    out[i++] = norm(3, three);
    out[i++] = abs(-1.5f) + abs(-2.5) + abs(-3);  // of every type
    out[i++] = fdividef(1.0f, 4.0f) + fdivide(1.0, 4.0);
}

__global__ void fast_functions(float x, double* out) {
    int i = 0;
    out[i++] = __expf(x);
    out[i++] = __exp10f(x);
    out[i++] = __logf(x);
    out[i++] = __log2f(x);
    out[i++] = __log10f(x);
    out[i++] = __sinf(x);
    out[i++] = __cosf(x);
    out[i++] = __tanf(x);
    out[i++] = __powf(x, 3.5f);
    out[i++] = __fdividef(x, 3.0f);
    float sine, cosine;
    __sincosf(x, &sine, &cosine);
    out[i++] = sine;
    out[i++] = cosine;
}

__global__ void least_and_largest(int minus, double* out) {
    int i = 0;
    out[i++] = min(minus, 3);
    out[i++] = max(minus, 3);
    out[i++] = max(minus, 3u);  // the int becomes unsigned
    out[i++] = static_cast<double>(min(-5l, 7l) + max(-5ll, 7ll));
    out[i++] = static_cast<double>(min(5ul, 7l));
    out[i++] = min(1.5f, 2.5f) + max(1.5, 2.5);
    out[i++] = max(1.5f, 2.5) + min(1.5, 2.5f);
    out[i++] = max(NAN, 1.0f) + min(1.0, static_cast<double>(NAN));
    out[i++] = umin(3u, 4u) + umax(3u, 4u);
    out[i++] = static_cast<double>(llmax(-1, 1) + llmin(-1, 1));
    out[i++] = fminf(1.0f, 2.0f) + fmaxf(1.0f, 2.0f);
}

PENSTOCK_KERNEL(functions)
PENSTOCK_KERNEL(fast_functions)
PENSTOCK_KERNEL(least_and_largest)

}  // namespace penstock::cuda_language
