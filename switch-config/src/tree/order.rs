//! Which of two names comes first: numbers in them count as numbers.

use std::cmp::Ordering;

/// Compares names as people sort them: `Ethernet2` is before `Ethernet10`.
pub fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (left, right) = (split(one), split(other));
        let ((left, rest), (right, rest_of_other)) = match (left, right) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => (left, right),
        };
        let order = compare(left, right);
        if order != Ordering::Equal {
            return order;
        }
        (one, other) = (rest, rest_of_other);
    }
}

/// The digits at the front, or all before the next digit, and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let first = text.chars().next()?;
    let is_other = |one: char| one.is_ascii_digit() != first.is_ascii_digit();
    Some(text.split_at(text.find(is_other).unwrap_or(text.len())))
}

fn compare(one: &str, other: &str) -> Ordering {
    let are_numbers = [one, other].map(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    if are_numbers != [true, true] {
        return one.cmp(other);
    }
    let [left, right] = [one, other].map(|part| part.trim_start_matches('0'));
    left.len()
        .cmp(&right.len())
        .then_with(|| left.cmp(right))
        .then_with(|| one.len().cmp(&other.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["swp10", "swp2", "swp", "eth0", "swp2s1", "swp02"];
        names.sort_by(|one, other| natural(one, other));
        assert_eq!(names, ["eth0", "swp", "swp2", "swp2s1", "swp02", "swp10"]);
    }
}
