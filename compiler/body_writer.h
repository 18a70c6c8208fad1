// Writes a kernel's body in the form that can be entered again at its points.
//
// Structured re-entry: there is one copy of the code. On the way down to a point, what stands ahead
// of it is guarded by `penstock_at == 0`, loops and conditions on the way are entered without a
// test, and at the point `penstock_at` becomes 0.
#pragma once

#include <clang/AST/DeclCXX.h>

#include "compiler/diagnostics.h"
#include "compiler/edits.h"
#include "compiler/frame.h"
#include "compiler/kernels.h"

namespace penstock::compiler {

class BodyWriter {
public:
    BodyWriter(const SourceText& text, const Kernel& kernel, const Frame& frame, Edits& edits,
               Diagnostics& diagnostics)
        : text_(text), kernel_(kernel), frame_(frame), edits_(edits), diagnostics_(diagnostics) {}

    // Makes all edits of the body.
    void write();

private:
    struct Range {  // of points; empty if first is 0
        unsigned first = 0, last = 0;
    };

    [[nodiscard]] Range points_in(const clang::Stmt* statement) const;
    [[nodiscard]] const Point* point_of(const clang::Stmt* statement) const;
    void write_list(const std::vector<const clang::Stmt*>& children);
    void write_compound(const clang::CompoundStmt* list);
    void write_on_path(const clang::Stmt* statement);
    void write_if(const clang::IfStmt* choice);
    void write_for(const clang::ForStmt* loop);
    void write_body(const clang::Stmt* body);
    void write_point(const Point& point, bool is_last);
    void write_declaration(const clang::DeclStmt* statement);
    void write_bindings(const clang::DecompositionDecl* bindings, const clang::DeclStmt* statement);
    void guard(Span span, const std::string& condition);
    void guard_list(const std::vector<const clang::Stmt*>& run);
    bool guard_initialiser(const clang::VarDecl* variable);
    bool drop_const(const clang::VarDecl* variable, const clang::DeclStmt* statement);
    bool guard_elements(const clang::VarDecl* variable);
    [[nodiscard]] std::string load_after(const clang::VarDecl* variable) const;
    [[nodiscard]] std::string loaded(const clang::VarDecl* variable, const std::string& type) const;
    [[nodiscard]] std::string type_text(const clang::VarDecl* variable) const;
    [[nodiscard]] std::string saves(const Point& point, const std::string& indent) const;
    [[nodiscard]] std::string restore_shared(const clang::DeclStmt* statement) const;
    [[nodiscard]] std::string unless_read_whole(const std::set<unsigned>& replaced,
                                                const std::string& size) const;
    [[nodiscard]] bool is_moved(const clang::DeclStmt* statement) const;
    [[nodiscard]] std::string condition(Range range) const;
    void guard_condition(const clang::Expr* condition, const std::string& before,
                         const std::string& behind);
    bool check_plain(clang::SourceLocation at, const std::string& what);

    const SourceText& text_;
    const Kernel& kernel_;
    const Frame& frame_;
    Edits& edits_;
    Diagnostics& diagnostics_;
};

}  // namespace penstock::compiler
