// What a function's body does with its variables: reads, writes, and addresses that it takes.
//
// Every reference to a parameter or to a variable of the body is classified by the expressions
// round it. What is not understood counts as a read, a write, and an address that is kept. Pure:
// reads the AST of one function, which is not dependent.
#pragma once

#include <clang/AST/ASTContext.h>
#include <clang/AST/Decl.h>
#include <clang/AST/ExprCXX.h>

#include <map>
#include <set>
#include <vector>

namespace penstock::compiler {

constexpr int kWholeVariable = -1;      // the variable, or an element that is not known
constexpr unsigned kElementsMax = 256;  // elements of an array that are told apart

struct Access {
    const clang::Expr* reference = nullptr;  // the DeclRefExpr
    const clang::VarDecl* variable = nullptr;
    int element = kWholeVariable;  // of an array, if the subscript is a constant
    bool reads = false;
    bool writes = false;         // all or a part
    bool replaces = false;       // the write leaves nothing of the old value (of the element)
    bool keeps_address = false;  // the address may be used after the expression
    bool in_lambda = false;
    const clang::Stmt* definition = nullptr;  // the expression that writes
    const clang::Expr* value = nullptr;       // what is written, if one expression says it
};

// What is known of a variable in all of the function.
struct VariableFacts {
    bool held = false;      // its address may be kept: it may be read at any time
    bool written = false;   // behind its declaration
    bool captured = false;  // by a lambda, by reference
    unsigned elements = 0;  // > 0: an array whose elements are told apart
};

class Accesses {
public:
    explicit Accesses(const clang::FunctionDecl* function) : Accesses(function, 0) {}

    [[nodiscard]] const std::vector<Access>& all() const { return accesses_; }
    [[nodiscard]] const Access* find(const clang::Expr* reference) const;
    [[nodiscard]] VariableFacts facts(const clang::VarDecl* variable) const;
    // The variables that the body declares, in order, shared ones included, and the parameters.
    [[nodiscard]] const std::vector<const clang::VarDecl*>& variables() const { return variables_; }
    // The statements that contain an expression or statement of the body, outermost first.
    [[nodiscard]] std::vector<const clang::Stmt*> parents(const clang::Stmt* statement) const;
    [[nodiscard]] const clang::Stmt* parent(const clang::Stmt* statement) const;
    [[nodiscard]] bool is_in_lambda(const clang::Stmt* statement) const;
    // All statements of the body, parents first; lambda bodies included.
    [[nodiscard]] const std::vector<const clang::Stmt*>& statements() const { return statements_; }

private:
    // `depth`: how many calls lie between the kernel and the function.
    Accesses(const clang::FunctionDecl* function, int depth);
    void walk(const clang::Stmt* statement, const clang::Stmt* parent, bool in_lambda);
    void add_variable(const clang::VarDecl* variable);
    void classify(const clang::DeclRefExpr* reference, bool in_lambda);
    bool climb(const clang::Expr*& at, const clang::Stmt* above, bool& partial);
    void end_at(Access& access, const clang::Expr* at, const clang::Stmt* above, bool partial);
    [[nodiscard]] bool is_bound(const clang::Expr* assignment) const;
    void pass_argument(Access& access, clang::QualType parameter, clang::QualType result);
    [[nodiscard]] bool only_reads(const clang::FunctionDecl* callee, unsigned index) const;
    void end_at_call(Access& access, const clang::Expr* at, const clang::Expr* call, bool partial);

    const clang::FunctionDecl* function_;
    const int depth_;
    std::vector<Access> accesses_;
    std::map<const clang::Expr*, size_t> index_;
    std::map<const clang::VarDecl*, VariableFacts> facts_;
    std::vector<const clang::VarDecl*> variables_;
    std::vector<const clang::Stmt*> statements_;
    std::map<const clang::Stmt*, const clang::Stmt*> parents_;
    std::set<const clang::Stmt*> in_lambda_;
};

// Returns the variable that a reference names: of a structured binding, the one that holds all.
const clang::VarDecl* variable_of(const clang::DeclRefExpr* reference);

}  // namespace penstock::compiler
