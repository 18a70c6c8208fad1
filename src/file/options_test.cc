// Goal: invalid options and environment variables are errors that name them, and are never ignored.
// An empty variable counts as not set.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "file/calibration.h"
#include "file/file_service.h"
#include "file/host_read_fixture.h"
#include "penstock/calibrate.h"

namespace penstock {
namespace {

// Of one variable, put back at the end.
class Setting {
public:
    Setting(const char* name, const char* value) : name_(name) {
        const char* const old = std::getenv(name);
        was_set_ = old != nullptr;
        if (was_set_) old_ = old;
        setenv(name, value, 1);
    }
    ~Setting() { was_set_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

private:
    const char* const name_;
    bool was_set_ = false;
    std::string old_;
};

using OptionsTest = HostReadTest;

TEST_F(OptionsTest, ThreadsThatAreNoNumberInReachAreNamed) {
    CalibrateOptions measuring;
    measuring.store = false;
    measuring.seconds_max = 0;
    for (const char* wrong : {"two", "0", "65", "-1", "4 ", " 4", "4x", "4294967297"}) {
        const Setting setting("PENSTOCK_THREADS", wrong);
        const Status status = File::open(path_).status();
        EXPECT_EQ(status.error_number(), EINVAL) << wrong;
        EXPECT_STREQ(status.origin(), "PENSTOCK_THREADS") << wrong;
        EXPECT_STREQ(calibrate(path_, {}, measuring).status().origin(), "PENSTOCK_THREADS")
            << wrong;
        FileOptions named;
        named.threads = 2;
        EXPECT_TRUE(File::open(path_, {}, named).ok()) << "an option goes before it";
    }
}

TEST_F(OptionsTest, TheEnvironmentNamesTheRouteWhereNobodyElseDoes) {
    const Setting route("PENSTOCK_ROUTE", "direct");
    const Setting strict("PENSTOCK_STRICT", "Yes");
    const FileOptions asked = File::open(path_).value().options();
    EXPECT_EQ(asked.reading.route, Route::kDirect);
    EXPECT_EQ(asked.writing.route, Route::kDirect);
    EXPECT_TRUE(asked.reading.strict && asked.writing.strict);
    FileOptions named;
    named.reading.route = Route::kCached;
    const FileOptions half = File::open(path_, {}, named).value().options();
    EXPECT_EQ(half.reading.route, Route::kCached);
    EXPECT_EQ(half.writing.route, Route::kDirect);
    named = {};
    named.route_of_environment = false;
    const FileOptions only_strict = File::open(path_, {}, named).value().options();
    EXPECT_FALSE(only_strict.reading.route.has_value() || only_strict.writing.route.has_value());
    EXPECT_TRUE(only_strict.reading.strict && only_strict.writing.strict);
    named = {};
    named.strict_of_environment = false;
    const FileOptions only_route = File::open(path_, {}, named).value().options();
    EXPECT_EQ(only_route.reading.route, Route::kDirect);
    EXPECT_FALSE(only_route.reading.strict || only_route.writing.strict);
    const Setting any("PENSTOCK_ROUTE", "auto");
    const Setting off("PENSTOCK_STRICT", "0");
    const FileOptions plain = File::open(path_).value().options();
    EXPECT_FALSE(plain.reading.route.has_value() || plain.reading.strict);
}

TEST_F(OptionsTest, RoutesThatThereAreNotAreNamed) {
    for (const auto& [name, value] :
         {std::pair("PENSTOCK_ROUTE", "fast"), std::pair("PENSTOCK_ROUTE", "Direct"),
          std::pair("PENSTOCK_STRICT", "maybe")}) {
        const Setting setting(name, value);
        const Status status = File::open(path_).status();
        EXPECT_EQ(status.error_number(), EINVAL) << value;
        EXPECT_STREQ(status.origin(), name);
    }
}

TEST_F(OptionsTest, ThreadsThatMakeSenseCount) {
    const Setting setting("PENSTOCK_THREADS", "64");
    EXPECT_EQ(file::thread_count({}).value(), 64u);
    const Setting empty("PENSTOCK_THREADS", "");
    EXPECT_GE(file::thread_count({}).value(), 1u);
    EXPECT_LE(file::thread_count({}).value(), 16u);
    EXPECT_TRUE(File::open(path_).ok());
}

TEST_F(OptionsTest, ADeviceThatIsNoneIsNamed) {
    const Setting setting("PENSTOCK_DEVICE", "gpu");
    EXPECT_STREQ(Device::open().status().origin(), "PENSTOCK_DEVICE");
    EXPECT_EQ(Device::open().status().error_number(), EINVAL);
    EXPECT_STREQ(Device::open("gpu").status().origin(), "device");
}

TEST_F(OptionsTest, AThrottleThatIsNoFigureIsRefusedAlsoWhereOthersAreOpen) {
    FileOptions slow;
    slow.study.throttle_latency_us = 1;
    const auto plain = File::open(path_), slowed = File::open(path_, {}, slow);
    ASSERT_TRUE(plain.ok() && slowed.ok());
    const auto error = [](const auto& opened) { return opened.status().error_number(); };
    for (const double wrong : {double{NAN}, -1.0, double{INFINITY}, -double{INFINITY}, 1e300}) {
        for (const bool latency : {true, false}) {
            FileOptions options;
            (latency ? options.study.throttle_latency_us
                     : options.study.throttle_bandwidth_mbs) = wrong;
            EXPECT_EQ(error(File::open(path_, {}, options)), EINVAL) << wrong;
            CalibrateOptions measuring;
            measuring.store = false;
            measuring.study.throttle_latency_us = options.study.throttle_latency_us;
            measuring.study.throttle_bandwidth_mbs = options.study.throttle_bandwidth_mbs;
            EXPECT_EQ(error(calibrate(path_, {}, measuring)), EINVAL) << wrong;
        }
    }
}

TEST_F(OptionsTest, TheUsersConfigurationIsOutOfReachOfTests) {
    const file::Calibrations known = file::load_calibrations(file::calibration_path());
    EXPECT_TRUE(known.entries.empty() && known.complaint.empty()) << known.complaint;
    EXPECT_EQ(file::store_calibration(file::calibration_path(), {}).error_number(), ENOTDIR);
}

}  // namespace
}  // namespace penstock
