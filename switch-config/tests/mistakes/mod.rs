//! Broken configurations: each must be found, by the rule that it breaks, at its place.

use gradwire_switch_config::dialect;
use gradwire_switch_config::lint::Rule;
use gradwire_switch_config::plan::Plan;

use crate::properties::findings;

/// A way to break a configuration: a replacement, and the finding that must name it.
pub(crate) struct Broken {
    /// A text that is there once or more.
    pub(crate) from: &'static str,
    /// The text that takes its place.
    pub(crate) to: &'static str,
    /// The rule that finds it.
    pub(crate) rule: Rule,
    /// The words that the finding must have.
    pub(crate) names: &'static str,
}

/// A row of a table of broken configurations.
pub(crate) const fn broken(
    from: &'static str,
    to: &'static str,
    rule: Rule,
    names: &'static str,
) -> Broken {
    Broken {
        from,
        to,
        rule,
        names,
    }
}

/// Every broken variant is found, by the rule that it breaks, at its place.
pub(crate) fn all_are_found(plan: &Plan, table: &[Broken]) {
    let dialect = dialect::of(plan.target.platform);
    let text = dialect.render(plan);
    for Broken {
        from,
        to,
        rule,
        names,
    } in table
    {
        assert!(text.contains(from), "`{from}` is not in\n{text}");
        let found = findings(dialect, plan, &text.replace(from, to));
        let start = format!("{}: ", rule.name());
        let named = |finding: &String| finding.starts_with(&start) && finding.contains(names);
        assert!(found.iter().any(named), "`{from}` as `{to}`: {found:#?}");
    }
}
