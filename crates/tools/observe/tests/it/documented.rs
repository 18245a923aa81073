//! Comparison of docs/reference/metrics.md, the guide, the dashboard and the alerts with the tables of families.

use std::collections::BTreeSet;

use netvale_observe::metrics::all;
use netvale_observe::metrics::families::MetricFamily;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../../docs/reference/metrics.md");
const GUIDE: &str = include_str!("../../../../../docs/guide/observe.md");
const DASHBOARD: &str = include_str!("../../../../../dist/grafana/netvale.json");
const ALERTS: &str = include_str!("../../../../../dist/prometheus/netvale.rules.yml");

/// Objective: the reference page has exactly one row for each family, in order, with the family's type, labels, unit
/// and meaning.
#[test]
fn page_is_the_table() {
    let rows: Vec<_> = PAGE.lines().filter(|line| line.starts_with("| `netvale_")).collect();
    let or_none = |text: String| if text.is_empty() { "–".to_owned() } else { text };
    let row = |family: &'static MetricFamily| {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let unit = family.unit.as_ref().map(|unit| unit.as_str().to_owned()).unwrap_or_default();
        let labels = or_none(labels.join(", "));
        let unit = or_none(unit);
        format!("| `{}` | {} | {labels} | {unit} | {} |", family.sample(), family.of.as_str(), family.help)
    };
    assert_eq!(rows, all().map(row).collect::<Vec<_>>());
}

/// Returns the names of samples in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("netvale_")).collect()
}

fn are_known(what: &str, text: &str) {
    let of = |family: &'static MetricFamily| family.samples().into_iter().chain([family.sample()]);
    let known: BTreeSet<_> = all().flat_map(of).collect();
    let used = names(text);
    assert!(!used.is_empty(), "{what}");
    for name in used {
        assert!(known.contains(name), "{what}: {name} is not documented");
    }
}

/// Objective: alerts, the guide and each query and variable of the dashboard use only documented names.
#[test]
fn queries_are_documented() {
    are_known("the alerts", ALERTS);
    are_known("the guide", GUIDE);
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let panels = list(&dashboard["panels"]);
    let queries = panels.iter().flat_map(|panel| list(&panel["targets"])).map(|target| target["expr"].clone());
    let variables = list(&dashboard["templating"]["list"]).into_iter().map(|one| one["definition"].clone());
    let all: Vec<_> = queries.chain(variables.filter(|one| !one.is_null())).collect();
    assert!(all.len() >= 30, "{}", all.len());
    all.iter().for_each(|query| are_known("the dashboard", query.as_str().expect("a query")));
}

/// Objective: names follow Prometheus' naming rules: they use its alphabet and base units, and no name is used twice.
#[test]
fn names_are_names() {
    let names: BTreeSet<_> = all().map(|family| family.sample()).collect();
    assert_eq!(names.len(), all().count());
    for family in all() {
        let names = family.labels.iter().chain([&family.name]);
        for name in names {
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !name.ends_with("_total"), "{name}");
        }
        assert!(family.help.ends_with('.'), "{}", family.name);
    }
}
