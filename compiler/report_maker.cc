// Lists what each point saves, and where it would save less.
#include "compiler/report_maker.h"

#include <algorithm>

namespace penstock::compiler {

using clang::dyn_cast;

namespace {

PointReport make_point(const Kernel&, const Frame& frame, const Point& point) {
    PointReport report;
    report.number = point.number;
    report.line = point.line;
    report.call = callee_name(point.call);
    report.thread_bytes = frame.thread_bytes(point.number);
    report.block_bytes = frame.block_bytes(point.number);
    report.shared_bytes = frame.shared_bytes(point.number);
    report.dynamic_shared = frame.dynamic_shared;
    report.dynamic_if_read_short = frame.dynamic_replaced.count(point.number) != 0;
    for (const SavedPart& part : frame.parts) {
        if (part.points.count(point.number) == 0) continue;
        const auto plan = frame.variables.find(part.key);
        const std::string why = part.is_read ? "the request of the read" : plan->second.why;
        report.values.push_back({part.name, why, part.size, part.replaced.count(point.number) != 0,
                                 part.shared      ? "shared"
                                 : part.per_block ? "block"
                                                  : "thread"});
    }
    for (const auto& [key, plan] : frame.variables) {
        if (plan.seen.count(point.number) == 0 || plan.live.count(point.number) == 0) {
            if (plan.seen.count(point.number) != 0)
                report.values.push_back({plan.name,
                                         plan.treatment == Treatment::kRematerialised ||
                                                 plan.treatment == Treatment::kMadeAgain
                                             ? plan.why
                                             : "dead",
                                         0, false, ""});
            continue;
        }
        if (frame.parts_of(key).empty())
            report.values.push_back({plan.name, plan.why, 0, false, ""});
    }
    return report;
}

// Bytes of each thread that would be saved with this set live, of the variables of the frame.
unsigned thread_bytes(const SourceText& text, const Frame& frame, const Body& body,
                      const llvm::BitVector& live) {
    unsigned found = 0;
    for (const clang::VarDecl* variable : body.accesses.variables()) {
        const auto plan = frame.variables.find(key_of(text, variable));
        if (plan != frame.variables.end() && plan->second.treatment != Treatment::kGuarded)
            continue;
        if (!is_frame_variable(variable) || variable->getType()->isReferenceType()) continue;
        if (llvm::isa<clang::ParmVarDecl>(variable)) continue;
        if (plan == frame.variables.end() && body.recreation.is_rematerialised(variable)) continue;
        if (body.uniformity.level(variable) == Level::kUniform) continue;
        const auto elements = body.liveness.live_elements(live, variable);
        const unsigned size = static_cast<unsigned>(
            text.context().getTypeSizeInChars(variable->getType()).getQuantity());
        found += size / body.liveness.bits(variable) * static_cast<unsigned>(elements.size());
    }
    return found;
}

void add_cheaper(const SourceText& text, const Kernel& kernel, const Frame& frame, const Body& body,
                 const Point& point, PointReport& report) {
    const clang::CallExpr* call = body.call_at(text, point.key);
    if (call == nullptr || body.graph.place(call).block == nullptr) return;
    const std::vector<const clang::Stmt*> path = body.accesses.parents(call);
    const clang::CompoundStmt* list = nullptr;
    for (const clang::Stmt* above : path)
        if (const auto* found = dyn_cast<clang::CompoundStmt>(above)) list = found;
    if (list == nullptr) return;
    const unsigned now = thread_bytes(text, frame, body, live_at(body, call));
    for (const clang::Stmt* child : list->body()) {
        const unsigned line = text.line(text.span(child->getSourceRange()).begin);
        if (line == point.line || !llvm::isa<clang::Expr, clang::DeclStmt>(child)) continue;
        // The first element of the statement in the graph.
        Place first;
        for (const clang::Stmt* part : body.accesses.statements()) {
            const Place place = body.graph.place(part);
            if (place.block == nullptr) continue;
            const auto above = body.accesses.parents(part);
            if (part != child && std::find(above.begin(), above.end(), child) == above.end())
                continue;
            if (first.block == nullptr || (place.block == first.block && place.index < first.index))
                first = place;
        }
        if (first.block == nullptr) continue;
        const unsigned there = thread_bytes(text, frame, body, body.liveness.before(first));
        if (there < now) report.cheaper.push_back({line, now - there});
    }
    static_cast<void>(kernel);
}

}  // namespace

KernelReport make_report(const SourceText& text, const Kernel& kernel, const Frame& frame,
                         const std::vector<std::unique_ptr<Body>>& bodies) {
    KernelReport report;
    report.name = kernel.name();
    report.line = text.line(text.offset(kernel.pattern->getLocation()));
    for (const Registration& one : kernel.registrations) report.instances.push_back(one.text);
    report.thread_words = frame.thread_words;
    report.block_words = frame.block_words;
    report.shared_size = frame.shared_size;
    report.one_run = frame.one_run;
    for (const auto* parameter : kernel.instances[0]->parameters())
        report.parameter_bytes += static_cast<unsigned>(
            text.context().getTypeSizeInChars(parameter->getType()).getQuantity());
    for (const Point& point : kernel.points) {
        report.points.push_back(make_point(kernel, frame, point));
        add_cheaper(text, kernel, frame, *bodies[0], point, report.points.back());
    }
    return report;
}

}  // namespace penstock::compiler
