//! Reads Rust as text: just enough of the grammar to find functions and declared names.
//!
//! Comments and literals are blanked first, so that a word in a message is never taken for code.

/// A function with a body.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of the keyword `fn`, from 1 on.
    pub line: usize,
    /// Number of lines from there through the closing brace.
    pub lines: usize,
    /// Whether `#[test]` stands before it.
    pub is_test: bool,
}

/// The text with every comment and literal replaced by spaces; lines and columns stay.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let length = blanked(&chars[at..]);
        if length == 0 {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        let end = (at + length).min(chars.len());
        out.extend(
            chars[at..end]
                .iter()
                .map(|&char| if char == '\n' { '\n' } else { ' ' }),
        );
        at = end;
    }
    out
}

/// Length of the comment or literal at the start of `rest`; 0 if there is neither.
fn blanked(rest: &[char]) -> usize {
    match (rest[0], rest.get(1)) {
        ('/', Some('/')) => rest
            .iter()
            .position(|&char| char == '\n')
            .unwrap_or(rest.len()),
        ('/', Some('*')) => block_comment(rest),
        ('"', _) => 1 + until_quote(&rest[1..], '"'),
        ('r', Some('"' | '#')) => raw_string(rest),
        ('\'', Some('\\')) => 3 + until_quote(&rest[3..], '\''),
        ('\'', _) if rest.get(2) == Some(&'\'') => 3,
        _ => 0,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Number of characters through the closing quote; escaped characters do not close it.
fn until_quote(rest: &[char], quote: char) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of `r"…"` or `r#"…"#`; 0 for a raw identifier.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&char| char == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let closes = |at: usize| {
        rest[at] == '"'
            && rest[at + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes
    };
    let end = (2 + hashes..rest.len()).find(|&at| closes(at));
    end.map_or(rest.len(), |at| at + 1 + hashes)
}

/// A word or a sign of the code.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Token {
    /// Its text; `::` is one sign.
    pub text: String,
    /// Its line, from 1 on.
    pub line: usize,
}

impl Token {
    fn is_word(&self) -> bool {
        self.text
            .starts_with(|char: char| char.is_alphabetic() || char == '_')
    }
}

/// The words and signs of `code`, the output of [`code_only`].
pub fn tokens(code: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (index, text) in code.lines().enumerate() {
        let mut joined = ' ';
        for char in text.chars() {
            let word = char.is_alphanumeric() || char == '_';
            let continues = (word && (joined.is_alphanumeric() || joined == '_'))
                || (char == ':' && joined == ':');
            joined = if char == ':' && continues { ' ' } else { char };
            match tokens.last_mut() {
                Some(last) if continues => last.text.push(char),
                _ if char.is_whitespace() => {}
                _ => tokens.push(Token {
                    text: char.to_string(),
                    line: index + 1,
                }),
            }
        }
    }
    tokens
}

/// All functions that have a body.
pub fn functions(code: &str) -> Vec<Function> {
    let tokens = tokens(code);
    let named = (1..tokens.len()).filter(|&at| tokens[at - 1].text == "fn" && tokens[at].is_word());
    named.filter_map(|at| function(&tokens, at)).collect()
}

fn function(tokens: &[Token], name: usize) -> Option<Function> {
    let line = tokens[name - 1].line;
    let last = body_end(&tokens[name + 1..])?;
    let opened = tokens[..name]
        .iter()
        .rposition(|token| "{};".contains(&*token.text));
    let before = &tokens[opened.map_or(0, |at| at + 1)..name];
    Some(Function {
        name: tokens[name].text.clone(),
        line,
        lines: last + 1 - line,
        is_test: before.windows(3).any(|three| {
            three
                .iter()
                .map(|token| &*token.text)
                .eq(["[", "test", "]"])
        }),
    })
}

/// The line of the brace that closes the body; `None` for a declaration without one.
fn body_end(rest: &[Token]) -> Option<usize> {
    let mut depth = 0_i32;
    let mut inside_body = false;
    for token in rest {
        match &*token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "{" => {
                inside_body |= depth == 0;
                depth += 1;
            }
            "}" => depth -= 1,
            ";" if depth == 0 => return None,
            _ => {}
        }
        if inside_body && depth == 0 {
            return Some(token.line);
        }
    }
    None
}

const DECLARING: [&str; 10] = [
    "fn", "struct", "enum", "trait", "type", "mod", "const", "static", "union", "let",
];

/// The names that the code declares: of items, bindings, fields and parameters.
pub fn declared_names(code: &str) -> Vec<Token> {
    let tokens = tokens(code);
    let mut names = Vec::new();
    for (at, token) in tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.is_word())
    {
        let before = tokens[..at].iter().rev().find(|word| word.text != "mut");
        let declared = before.is_some_and(|word| DECLARING.contains(&&*word.text));
        let typed = tokens.get(at + 1).is_some_and(|next| next.text == ":");
        if token.text != "mut" && (declared || typed) {
            names.push(token.clone());
        }
    }
    names
}

/// The words of a name in snake or camel case, in lower case.
pub fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for char in name.chars() {
        if char == '_' || (char.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        after_lower = char.is_lowercase() || char.is_numeric();
        if char != '_' {
            let last = words.last_mut().expect("one word is there from the start");
            last.extend(char.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "a /* b /* c */ d */ e // f\n\"g \\\" h\" r#\"i \"j\"# 'k' '\\n' '\\'' &'life x";
        let code = code_only(text);
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>(),
            ["a", "e", "&'life", "x"]
        );
        assert_eq!(code.lines().count(), 2);
        assert_eq!(code.chars().count(), text.chars().count());
    }

    #[test]
    fn functions_are_measured_from_keyword_to_closing_brace() {
        let code = "trait T { fn one(a: [u8; 4]); }\n#[test]\nfn two() -> [u8; 2]\n{\n  { }\n}\n";
        let found = functions(code);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&*found[0].name, found[0].line, found[0].lines),
            ("two", 3, 4)
        );
        assert!(found[0].is_test);
    }

    #[test]
    fn declared_names_are_items_bindings_fields_and_parameters() {
        let code = "fn f(a: u8) { let mut b = c::d(); } struct S { e: E }";
        let names: Vec<String> = declared_names(code)
            .into_iter()
            .map(|name| name.text)
            .collect();
        assert_eq!(names, ["f", "a", "b", "S", "e"]);
    }

    #[test]
    fn a_name_is_cut_into_its_words() {
        assert_eq!(words("PeerTable_ofRank2"), ["peer", "table", "of", "rank2"]);
    }
}
