// Walks from the body down to the points, and guards what is beside the way.
#include "compiler/body_writer.h"

#include <clang/AST/StmtCXX.h>

#include <algorithm>

#include "compiler/language.h"
#include "compiler/shared_scopes.h"

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

BodyWriter::Range BodyWriter::points_in(const clang::Stmt* statement) const {
    Range range;
    if (statement == nullptr) return range;
    const Span span = text_.span(statement->getSourceRange());
    for (const Point& point : kernel_.points) {
        if (!span.holds(point.key)) continue;
        if (range.first == 0) range.first = point.number;
        range.last = point.number;
    }
    return range;
}

const Point* BodyWriter::point_of(const clang::Stmt* statement) const {
    for (const Point& point : kernel_.points)
        if (point.statement == statement) return &point;
    return nullptr;
}

std::string BodyWriter::condition(Range range) const {
    if (range.first == 0) return "false";
    if (range.first == range.last) return "penstock_at == " + std::to_string(range.first);
    return "::penstock::preemption::within(penstock_at, " + std::to_string(range.first) + ", " +
           std::to_string(range.last) + ")";
}

bool BodyWriter::check_plain(clang::SourceLocation at, const std::string& what) {
    if (!at.isMacroID()) return true;
    diagnostics_.error(at,
                       what +
                           " ahead of a point comes from a macro, and must be guarded; write it "
                           "out, or end its scope before the point");
    return false;
}

void BodyWriter::guard(Span span, const std::string& condition) {
    // A directive stands on a line of its own.
    const bool directive = span.begin < text_.text().size() && text_.text()[span.begin] == '#';
    edits_.insert(span.begin, "if (" + condition + ") {" + (directive ? "\n" : " "));
    const RawToken* last = text_.token_before(span.end);
    const bool closed = last != nullptr && (last->first == ';' || last->first == '}');
    edits_.insert(span.end, closed ? " }" : "; }");
}

void BodyWriter::guard_list(const std::vector<const clang::Stmt*>& run) {
    if (run.empty()) return;
    Span span = text_.statement(run.front());
    for (const clang::Stmt* one : run) span.end = std::max(span.end, text_.statement(one).end);
    guard(span, "penstock_at == 0");
}

void BodyWriter::write() {
    const auto* list = clang::cast<clang::CompoundStmt>(kernel_.pattern->getBody());
    std::string top = " unsigned penstock_at = penstock_run.resumes_at();";
    std::string loads;
    for (const auto* parameter : kernel_.pattern->parameters()) loads += load_after(parameter);
    if (!loads.empty()) top += " if (penstock_at != 0) {" + loads + " }";
    if (frame_.dynamic_shared)
        top += " if (penstock_at != 0) { " +
               unless_read_whole(frame_.dynamic_replaced, "penstock_run.dynamic_shared_size()") +
               "penstock_run.load_dynamic_shared(" + std::to_string(frame_.shared_size) +
               "); __syncthreads(); }";
    for (const clang::DeclStmt* moved : declarations_of(text_, kernel_.pattern, frame_.moved)) {
        Span span = text_.statement(moved);
        span.begin = text_.span(moved->getSourceRange()).begin;
        top += " " + text_.text(span) + restore_shared(moved);
        const std::string& all = text_.text();
        const auto lines = std::count(all.begin() + span.begin, all.begin() + span.end, '\n');
        edits_.replace(span, std::string(static_cast<size_t>(lines), '\n'));
    }
    edits_.insert(text_.offset(list->getLBracLoc()) + 1, top);
    write_compound(list);
}

void BodyWriter::write_compound(const clang::CompoundStmt* list) {
    write_list({list->body_begin(), list->body_end()});
}

void BodyWriter::write_list(const std::vector<const clang::Stmt*>& children) {
    size_t last = children.size();
    for (size_t i = 0; i < children.size(); ++i)
        if (points_in(children[i]).first != 0) last = i;
    std::vector<const clang::Stmt*> run;
    for (size_t i = 0; i < children.size() && last != children.size() && i <= last; ++i) {
        const clang::Stmt* child = children[i];
        const Range range = points_in(child);
        if (i > 0 && text_.statement(child).begin < text_.statement(children[i - 1]).end &&
            isa<clang::DeclStmt>(child) != isa<clang::DeclStmt>(children[i - 1])) {
            diagnostics_.error(child->getBeginLoc(),
                               "a macro ahead of a point that declares a variable and does more "
                               "cannot be guarded; write it out");
            return;
        }
        if (const Point* point = point_of(child)) {
            guard_list(run);
            run.clear();
            write_point(*point, i == last);
        } else if (range.first != 0) {
            guard_list(run);
            run.clear();
            const Span span = text_.statement(child);
            const bool directive = text_.text()[span.begin] == '#';
            if (i != last)
                edits_.insert(span.begin, "if (penstock_at == 0 || " + condition(range) +
                                              (directive ? ") {\n" : ") { "));
            write_on_path(child);
            if (i != last) edits_.insert(span.end, " }");
        } else if (const auto* declaration = dyn_cast<clang::DeclStmt>(child)) {
            guard_list(run);
            run.clear();
            write_declaration(declaration);
        } else if (isa<clang::LabelStmt>(child)) {
            guard_list(run);
            run.clear();
            guard_list({clang::cast<clang::LabelStmt>(child)->getSubStmt()});
        } else if (!isa<clang::NullStmt>(child) || !run.empty()) {
            run.push_back(child);
        }
    }
    guard_list(run);
}

void BodyWriter::write_on_path(const clang::Stmt* statement) {
    if (const auto* attributed = dyn_cast<clang::AttributedStmt>(statement))
        return write_on_path(attributed->getSubStmt());
    if (const auto* list = dyn_cast<clang::CompoundStmt>(statement)) return write_compound(list);
    if (const auto* choice = dyn_cast<clang::IfStmt>(statement)) return write_if(choice);
    if (const auto* loop = dyn_cast<clang::ForStmt>(statement)) return write_for(loop);
    if (const auto* loop = dyn_cast<clang::WhileStmt>(statement)) {
        guard_condition(loop->getCond(), "penstock_at != 0 || (", ")");
        return write_body(loop->getBody());
    }
    if (const auto* loop = dyn_cast<clang::DoStmt>(statement)) return write_body(loop->getBody());
}

void BodyWriter::guard_condition(const clang::Expr* condition, const std::string& before,
                                 const std::string& behind) {
    const Span span = text_.span(condition->getSourceRange());
    edits_.insert(span.begin, before);
    edits_.insert(span.end, behind);
}

void BodyWriter::write_if(const clang::IfStmt* choice) {
    if (const auto* declaration = dyn_cast_or_null<clang::DeclStmt>(choice->getInit())) {
        for (const auto* one : declaration->decls())
            if (const auto* variable = dyn_cast<clang::VarDecl>(one)) guard_initialiser(variable);
    } else if (choice->getInit() != nullptr) {
        guard_condition(clang::cast<clang::Expr>(choice->getInit()),
                        "penstock_at != 0 ? static_cast<void>(0) : static_cast<void>(", ")");
    }
    const Range then = points_in(choice->getThen());
    if (!choice->isConstexpr()) {
        if (then.first != 0)
            guard_condition(choice->getCond(), "penstock_at == 0 ? static_cast<bool>(",
                            ") : " + condition(then));
        else
            guard_condition(choice->getCond(), "penstock_at == 0 && (", ")");
    }
    if (then.first != 0) write_body(choice->getThen());
    if (points_in(choice->getElse()).first == 0) return;
    if (const auto* next = dyn_cast<clang::IfStmt>(choice->getElse()))
        write_if(next);
    else
        write_body(choice->getElse());
}

void BodyWriter::write_for(const clang::ForStmt* loop) {
    if (const auto* declaration = dyn_cast_or_null<clang::DeclStmt>(loop->getInit())) {
        for (const auto* one : declaration->decls()) {
            const auto* variable = dyn_cast<clang::VarDecl>(one);
            if (variable == nullptr) continue;
            if (variable->getInit() == nullptr || variable->getType()->isArrayType())
                diagnostics_.error(variable->getLocation(),
                                   "a loop round a point declares variables with initialisers; "
                                   "declare '" +
                                       variable->getNameAsString() + "' ahead of it");
            else
                guard_initialiser(variable);
        }
    } else if (const auto* expression = dyn_cast_or_null<clang::Expr>(loop->getInit())) {
        guard_condition(expression, "penstock_at != 0 ? static_cast<void>(0) : static_cast<void>(",
                        ")");
    }
    if (loop->getCond() != nullptr) guard_condition(loop->getCond(), "penstock_at != 0 || (", ")");
    write_body(loop->getBody());
}

// A body that is one statement becomes a list.
void BodyWriter::write_body(const clang::Stmt* body) {
    if (const auto* list = dyn_cast<clang::CompoundStmt>(body)) return write_compound(list);
    const Span span = text_.statement(body);
    edits_.insert(span.begin, text_.text()[span.begin] == '#' ? "{\n" : "{ ");
    write_list({body});
    edits_.insert(span.end, " }");
}

// The condition under which a read of so many bytes leaves something of the memory that it fills.
static std::string unless_whole(bool replaced, unsigned point, const std::string& size) {
    if (!replaced) return "";
    return "if (!::penstock::preemption::is_whole(penstock_read_" + std::to_string(point) + ", " +
           size + ")) ";
}

// The same ahead of the point, for a block that is back.
std::string BodyWriter::unless_read_whole(const std::set<unsigned>& replaced,
                                          const std::string& size) const {
    std::string result;
    for (const unsigned point : replaced) {
        const SavedPart* read = frame_.read_of(point);
        if (read == nullptr) continue;
        result += (result.empty() ? "if (" : " && ") + std::string("(penstock_at != ") +
                  std::to_string(point) + " || !::penstock::preemption::is_whole(penstock_run" +
                  ".load_block<::penstock::preemption::Read>(" + std::to_string(read->place) +
                  "), " + size + "))";
    }
    return result.empty() ? "" : result + ") ";
}

std::string BodyWriter::saves(const Point& point, const std::string& indent) const {
    std::string result;
    for (const SavedPart& part : frame_.parts) {
        if (part.points.count(point.number) == 0) continue;
        const std::string place = std::to_string(part.place);
        if (part.shared)
            result += indent +
                      unless_whole(part.replaced.count(point.number) != 0, point.number,
                                   "sizeof " + part.name) +
                      "penstock_run.save_shared(&" + part.name + ", sizeof " + part.name + ", " +
                      place + ");\n";
        else
            result += indent + "penstock_run." + (part.per_block ? "save_block(" : "save(") +
                      place + ", " + part.name + ");\n";
    }
    if (frame_.dynamic_shared)
        result += indent +
                  unless_whole(frame_.dynamic_replaced.count(point.number) != 0, point.number,
                               "penstock_run.dynamic_shared_size()") +
                  "penstock_run.save_dynamic_shared(" + std::to_string(frame_.shared_size) + ");\n";
    return result;
}

void BodyWriter::write_point(const Point& point, bool is_last) {
    const std::string number = std::to_string(point.number);
    const std::string read = "penstock_read_" + number;
    const Span statement = [&] {
        Span span = text_.statement(point.statement);
        span.begin = text_.span(point.statement->getSourceRange()).begin;
        return span;
    }();
    const std::string indent = edits_.indent_at(statement.begin);
    const auto argument = [&](unsigned i) {
        return text_.text(point.call->getArg(i)->getSourceRange());
    };
    std::string ahead, awaited;
    if (point.kind == Call::kRead) {
        const Span arguments{text_.span(point.call->getArg(0)->getSourceRange()).begin,
                             text_.span(point.call->getArg(4)->getSourceRange()).end};
        std::string place;
        for (const SavedPart& part : frame_.parts)
            if (part.is_read && part.key == point.key) place = std::to_string(part.place);
        ahead = "::penstock::preemption::Read " + read + " = penstock_at == 0\n" + indent +
                "    ? ::penstock::preemption::begin_read(" + text_.text(arguments) + ")\n" +
                indent + "    : penstock_run.load_block<::penstock::preemption::Read>(" + place +
                ");\n" + indent;
        awaited = "until(" + read + ")";
    } else if (point.kind == Call::kYieldUntil) {
        awaited = "until_word(" + argument(0) + ", " + argument(1) + ")";
    } else if (point.kind == Call::kYield) {
        awaited = "until_turn()";
    } else {
        awaited = "until(" + argument(0) + ", " + argument(1) + ")";
    }
    ahead += "if (penstock_at == " + number + ") {\n" + indent + "    penstock_at = 0;\n" + indent +
             "} else if (" + (is_last ? "" : "penstock_at == 0 && ") +
             "penstock_run.leaves(::penstock::preemption::" + awaited + ")) {\n" +
             saves(point, indent + "    ") + indent + "    penstock_run.leave(" + number + ");\n" +
             indent + "    return;\n" + indent + "}";
    if (point.pragma.end != 0) edits_.replace(point.pragma, "");
    const bool stays = point.kind == Call::kRead || point.kind == Call::kWait;
    if (!stays) {
        edits_.replace(statement, ahead);
        return;
    }
    edits_.insert(statement.begin, ahead);
    if (point.kind == Call::kRead)
        edits_.replace(text_.span(point.call->getSourceRange()),
                       "::penstock::preemption::end_read(" + read + ", " + argument(4) + ")");
    if (is_last) return;
    if (const auto* declaration = dyn_cast<clang::DeclStmt>(point.statement))
        write_declaration(declaration);
    else
        guard(statement, "penstock_at == 0");
}

}  // namespace penstock::compiler
