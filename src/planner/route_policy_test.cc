// Goal: the decisions of a policy agree with each other for all options and kinds of files, and
// follow the options where those name a route.
#include "planner/route_policy.h"

#include <gtest/gtest.h>

#include <array>

namespace penstock::planner {
namespace {

constexpr DirectOffer kOffered{Route::kDirect, 512, 512};
constexpr std::array<uint64_t, 4> kSizes{4096, kDirectSizeMin, kPlanSizeMin - 1, kPlanSizeMin};

RoutePolicy policy_of(CachePolicy cache, std::optional<Route> route = {}, bool strict = false,
                      const FileFacts& file = {kOffered}) {
    ReadOptions options;
    options.cache = cache;
    options.route = route;
    options.strict = strict;
    return {options, file};
}

// Calls check(policy, options, file) for all combinations.
template <class Check>
void for_all(const Check& check) {
    for (const DirectOffer& offer : {DirectOffer{}, kOffered}) {
        for (unsigned bits = 0; bits < 8; ++bits) {
            const FileFacts file{offer, (bits & 1) != 0, (bits & 2) != 0};
            for (unsigned cache = 0; cache < 4; ++cache) {
                for (unsigned route = 0; route <= kRouteCount; ++route) {
                    ReadOptions options;
                    options.cache = static_cast<CachePolicy>(cache);
                    if (route < kRouteCount) options.route = static_cast<Route>(route);
                    options.strict = (bits & 4) != 0;
                    check(RoutePolicy(options, file), options, file);
                }
            }
        }
    }
}

TEST(RoutePolicy, DecisionsAgreeForAllOptionsAndFiles) {
    for_all([](const RoutePolicy& policy, const ReadOptions& options, const FileFacts& file) {
        EXPECT_FALSE(policy.asks_direct() && policy.asks_cached());
        EXPECT_TRUE(options.strict || !policy.required());
        if (options.strict && policy.asks_direct() && options.route != Route::kPeer) {
            EXPECT_EQ(policy.required(), Route::kDirect);
        }
        for (const uint64_t size : kSizes) {
            EXPECT_FALSE(policy.goes_through_cache(size) && policy.may_be_direct(size));
            EXPECT_FALSE(policy.goes_through_cache(size) && policy.asks_residency(size) &&
                         size >= kDirectSizeMin);
            EXPECT_FALSE(policy.is_small(size) && policy.asks_direct());
        }
        Request read;
        policy.fill(&read);
        EXPECT_FALSE(read.direct_asked && read.cached_because);
        EXPECT_EQ(read.cached_because.has_value(),
                  policy.asks_cached().has_value() ||
                      (file.direct.offset_alignment != 0 && file.direct_refused));
        WriteRequest write;
        policy.fill(&write);
        EXPECT_FALSE(write.direct_asked && file.direct_refused);
    });
}

TEST(RoutePolicy, ARouteThatIsNamedOverridesTheCachePolicy) {
    for (const CachePolicy cache :
         {CachePolicy::kAuto, CachePolicy::kKeep, CachePolicy::kDrop, CachePolicy::kBypass}) {
        EXPECT_TRUE(policy_of(cache, Route::kDirect).asks_direct());
        EXPECT_EQ(policy_of(cache, Route::kCached).asks_cached(), RouteReason::kAsked);
    }
    EXPECT_EQ(policy_of(CachePolicy::kKeep).asks_cached(), RouteReason::kKeep);
    EXPECT_TRUE(policy_of(CachePolicy::kBypass).asks_direct());
    EXPECT_TRUE(policy_of(CachePolicy::kAuto).asks_nothing());
}

TEST(RoutePolicy, SmallReadsAreDirectOnlyWhereThatCanPay) {
    const RoutePolicy policy = policy_of(CachePolicy::kAuto);
    EXPECT_TRUE(policy.goes_through_cache(kDirectSizeMin - 1));
    EXPECT_FALSE(policy.goes_through_cache(kDirectSizeMin));
    EXPECT_TRUE(policy.may_be_direct(kDirectSizeMin));
    EXPECT_TRUE(policy.is_small(kPlanSizeMin - 1));
    EXPECT_FALSE(policy.is_small(kPlanSizeMin));
    EXPECT_TRUE(
        policy_of(CachePolicy::kAuto, {}, false, {kOffered, true}).goes_through_cache(1 << 20));
    EXPECT_TRUE(policy_of(CachePolicy::kAuto, {}, false, {}).goes_through_cache(1 << 20));
}

TEST(RoutePolicy, DropIsStrictOnlyForBytesThatWereNotThereBefore) {
    const RoutePolicy policy = policy_of(CachePolicy::kDrop, {}, true);
    EXPECT_FALSE(policy.is_small(4096)) << "it may have to bypass the cache";
    EXPECT_TRUE(policy.must_drop(RouteReason::kSmall));
    EXPECT_FALSE(policy.must_drop(RouteReason::kResident));
    EXPECT_FALSE(policy.must_drop(RouteReason::kDirty));
    EXPECT_TRUE(policy.leaves_nothing(RouteReason::kDirty)) << "a part may be missing";
    EXPECT_EQ(policy.buffered(), Buffered::kNever);
    const RoutePolicy memory = policy_of(CachePolicy::kDrop, {}, true, {{}, false, true});
    EXPECT_FALSE(memory.must_drop(RouteReason::kSmall));
}

TEST(RoutePolicy, AReportNamesWhatCouldNotBeDone) {
    const auto reported = [](const RoutePolicy& policy, bool drop_refused) {
        return policy.reported(Route::kCached, RouteReason::kSmall, drop_refused);
    };
    EXPECT_EQ(reported(policy_of(CachePolicy::kAuto), true), RouteReason::kSmall);
    EXPECT_EQ(reported(policy_of(CachePolicy::kDrop), true), RouteReason::kNoDrop);
    EXPECT_EQ(reported(policy_of(CachePolicy::kDrop), false), RouteReason::kSmall);
    EXPECT_EQ(reported(policy_of(CachePolicy::kAuto, Route::kPeer), false), RouteReason::kNoPeer);
}

TEST(RoutePolicy, AnAppendIsCachedBecauseItsPlaceIsNotKnown) {
    EXPECT_EQ(policy_of(CachePolicy::kAuto).append_reason(), RouteReason::kDeferred);
    EXPECT_EQ(policy_of(CachePolicy::kKeep).append_reason(), RouteReason::kKeep);
    EXPECT_EQ(policy_of(CachePolicy::kBypass).append_reason(), RouteReason::kUnaligned);
    EXPECT_EQ(policy_of(CachePolicy::kAuto, Route::kDirect).append_reason(),
              RouteReason::kUnaligned);
}

TEST(RoutePolicy, AWriteSaysWhyItWasNotDirect) {
    EXPECT_EQ(policy_of(CachePolicy::kAuto).cached_write_reason(), RouteReason::kDeferred);
    EXPECT_EQ(policy_of(CachePolicy::kKeep).cached_write_reason(), RouteReason::kKeep);
    const FileFacts refused{kOffered, true, false};
    EXPECT_EQ(policy_of(CachePolicy::kBypass, {}, false, refused).cached_write_reason(),
              RouteReason::kRefused);
    EXPECT_EQ(policy_of(CachePolicy::kAuto, {}, false, refused).cached_write_reason(),
              RouteReason::kDeferred);
}

}  // namespace
}  // namespace penstock::planner
