//! The metric in a script's output.

use serde_json::Value;

/// Returns the metric of the last line that has it: a JSON object with that key, or the name
/// followed by a number, with `=`, `:` or only spaces between. `None` when no line has it. NaN
/// counts as a number here.
pub fn last(text: &str, name: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| in_line(line, name))
}

fn in_line(line: &str, name: &str) -> Option<f64> {
    let object = serde_json::from_str::<Value>(line.trim()).ok();
    let of_object = object.and_then(|object| object.get(name)?.as_f64());
    of_object.or_else(|| in_text(line, name))
}

/// Returns the number behind the last mention of the name.
fn in_text(line: &str, name: &str) -> Option<f64> {
    let mentions: Vec<usize> = line.match_indices(name).map(|(at, _)| at).collect();
    mentions.into_iter().rev().find_map(|at| {
        let is_word = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
        if line[..at].chars().next_back().is_some_and(is_word) {
            return None;
        }
        let rest = &line[at + name.len()..];
        let rest = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
        let value = rest.trim_start();
        let value = value.strip_prefix(['=', ':']).unwrap_or(value);
        if value.len() == rest.len() {
            return None;
        }
        number_at(value.trim_start())
    })
}

/// Reads the number at the start of a text.
fn number_at(text: &str) -> Option<f64> {
    let end = text.find(|letter: char| !(letter.is_ascii_alphanumeric() || "+-.".contains(letter)));
    let number = &text[..end.unwrap_or(text.len())];
    number.trim_end_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_with_the_metric_counts() {
        let text = "accuracy 0.1\n{\"accuracy\": 0.5, \"loss\": 2}\nstep 3\naccuracy=0.75\nbye\n";
        assert_eq!(last(text, "accuracy"), Some(0.75));
        assert_eq!(last(text, "loss"), Some(2.0));
        assert_eq!(last(text, "perplexity"), None);
        assert_eq!(last("", "accuracy"), None);
    }

    #[test]
    fn a_metric_is_written_in_several_ways() {
        for line in [
            "val: 1.5",
            "val = 1.5",
            "epoch 3: loss 2.0, val 1.5.",
            "{'val': 1.5}",
            "{\"epoch\": 3, \"val\": 1.5}",
            "val=2 then val=1.5",
            "  val 15e-1",
        ] {
            assert_eq!(last(line, "val"), Some(1.5), "{line}");
        }
    }

    #[test]
    fn other_words_are_no_metric() {
        for line in [
            "interval 1.5",
            "val/x 1.5",
            "val1.5",
            "values: 1.5",
            "val: high",
            "val",
        ] {
            assert_eq!(last(line, "val"), None, "{line}");
        }
    }

    #[test]
    fn nan_metrics_differ_from_missing_ones() {
        for line in ["val nan", "{\"val\": NaN}", "val=inf"] {
            assert!(!last(line, "val").expect(line).is_finite(), "{line}");
        }
    }
}
