// What a kernel saves at its points, how, and where in the saved state.
//
// Decided for all instantiations together, since they share one text: a variable is saved if one of
// them needs it, and once for the block only if it is uniform in all of them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/body.h"

namespace penstock::compiler {

enum class Treatment {
    kNone,            // nothing is saved and nothing is guarded: shared, static, no initialiser
    kRematerialised,  // its declaration stays as it is: evaluated again
    kMadeAgain,       // the same, for references, closures and addresses
    kReloaded,        // the same, for closures whose bytes are loaded over it
    kGuarded,         // its initialiser is evaluated only in a run from the start
};

// A value in the saved state.
struct SavedPart {
    unsigned key = 0;  // of the variable; of the call, for the request of a gread
    std::string name;
    int element = kWholeVariable;
    unsigned size = 0;  // bytes
    bool per_block = false, shared = false, is_read = false;
    std::set<unsigned> points;
    std::set<unsigned> replaced;  // points whose read replaces all of it, unless it is short
    unsigned place = 0;           // a word, or for shared memory a byte offset
};

struct VariablePlan {
    Treatment treatment = Treatment::kNone;
    std::string name, why;
    std::set<unsigned> live;  // the points where it is live
    std::set<unsigned> seen;  // the points where it is in scope
    bool parameter = false;
};

struct Frame {
    std::map<unsigned, VariablePlan> variables;  // by key
    std::set<unsigned> moved;                    // shared variables that move to the top
    std::vector<SavedPart> parts;
    unsigned thread_words = 0, block_words = 0, shared_size = 0;
    bool dynamic_shared = false;
    std::set<unsigned> dynamic_replaced;  // points whose read may replace all of it
    bool one_run = false;                 // threads return in divergent flow
    bool reads_block = false;

    [[nodiscard]] std::vector<const SavedPart*> parts_of(unsigned key) const;
    // Returns the part that holds the request of a gread, or null.
    [[nodiscard]] const SavedPart* read_of(unsigned point) const;
    [[nodiscard]] unsigned thread_bytes(unsigned point) const;
    [[nodiscard]] unsigned block_bytes(unsigned point) const;
    [[nodiscard]] unsigned shared_bytes(unsigned point) const;
};

constexpr unsigned kReadSize = 64;  // bytes that preemption::Read may take, if it is not declared

struct Move;

// Decides for all instantiations of a kernel. Reports what cannot be saved. `moves` is Legality's.
Frame make_frame(const SourceText& text, const Kernel& kernel,
                 const std::vector<std::unique_ptr<Body>>& bodies, Callees& callees,
                 unsigned read_size, Diagnostics& diagnostics, std::vector<Move>* moves);

// Returns the name of the variable that holds the values of a structured binding.
inline std::string bound_name(unsigned key) { return "penstock_bound_" + std::to_string(key); }

// Returns what is live behind a point, with all that is read to complete it.
llvm::BitVector live_at(const Body& body, const clang::CallExpr* call);

}  // namespace penstock::compiler
