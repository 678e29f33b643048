//! Evaluates licence expressions: names, `OR`, `AND`, `WITH`, parentheses, and the older `/` for
//! `OR`.

/// Whether a package with this licence `expression` may be used if only `allowed` licences are.
pub fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader {
        words: &words,
        allowed,
    };
    let verdict = reader.either();
    verdict && reader.words.is_empty()
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Reader<'_> {
    fn next_is(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn either(&mut self) -> bool {
        let mut verdict = self.both();
        while self.next_is("OR") {
            verdict |= self.both();
        }
        verdict
    }

    fn both(&mut self) -> bool {
        let mut verdict = self.single();
        while self.next_is("AND") {
            verdict &= self.single();
        }
        verdict
    }

    fn single(&mut self) -> bool {
        if self.next_is("(") {
            let verdict = self.either();
            return self.next_is(")") && verdict;
        }
        let Some((name, rest)) = self.words.split_first() else {
            return false;
        };
        let mut name = (*name).to_owned();
        self.words = rest;
        if self.next_is("WITH") {
            let Some((exception, rest)) = self.words.split_first() else {
                return false;
            };
            name = format!("{name} WITH {exception}");
            self.words = rest;
        }
        self.allowed.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_choice_of_an_expression_suffices() {
        let allowed = ["MIT".to_owned(), "ISC".to_owned(), "Unicode-3.0".to_owned()];
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(GPL-3.0 OR ISC) AND MIT",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT WITH LLVM-exception",
            "(MIT",
            "MIT MIT",
        ] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}
