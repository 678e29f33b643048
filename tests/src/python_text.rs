//! Reads Python as text: finds functions by indentation, declared names by the form of a line.

use crate::rust_text::{Function, Token};

/// All functions and methods, including nested ones.
pub fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let opening = (0..lines.len()).filter_map(|at| Some((at, defined(lines[at], "def ")?)));
    let functions = opening.map(|(at, name)| Function {
        name: name.to_owned(),
        line: at + 1,
        lines: length(&lines[at..]),
        is_test: name.starts_with("test_"),
    });
    functions.collect()
}

/// Names of functions and classes, and of the targets of assignments.
pub fn declared_names(text: &str) -> Vec<Token> {
    let mut names = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let defined = defined(line, "def ").or_else(|| defined(line, "class "));
        if let Some(name) = defined.or_else(|| assigned(line)) {
            names.push(Token {
                text: name.to_owned(),
                line: index + 1,
            });
        }
    }
    names
}

fn defined<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let line = line.trim_start();
    let rest = line
        .strip_prefix("async ")
        .unwrap_or(line)
        .strip_prefix(keyword)?;
    rest.split(|char: char| !is_of_name(char)).next()
}

fn assigned(line: &str) -> Option<&str> {
    let target = line.split_once(" = ")?.0.trim();
    let target = target.strip_prefix("self.").unwrap_or(target);
    let name = target.split(':').next()?;
    (!name.is_empty() && name.chars().all(is_of_name)).then_some(name)
}

fn is_of_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Number of lines of the function at the start of `rest`: up to the last line indented deeper.
fn length(rest: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut last = 0;
    for (at, line) in rest.iter().enumerate().skip(1) {
        let deeper = indent(line) > indent(rest[0]) || line.trim_start().starts_with(')');
        if line.trim().is_empty() {
            continue;
        }
        if !deeper {
            break;
        }
        last = at;
    }
    last + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_ends_where_its_indentation_does() {
        let text = concat!(
            "def a(\n    b,\n):\n    c = 1\n\n    return c\n\n\n",
            "class D:\n    def e(self):\n        self.f = 2\n",
        );
        let found = functions(text);
        let measured: Vec<(&str, usize, usize)> = found
            .iter()
            .map(|one| (&*one.name, one.line, one.lines))
            .collect();
        assert_eq!(measured, [("a", 1, 6), ("e", 10, 2)]);
        let names: Vec<String> = declared_names(text)
            .into_iter()
            .map(|name| name.text)
            .collect();
        assert_eq!(names, ["a", "c", "D", "e", "f"]);
    }
}
