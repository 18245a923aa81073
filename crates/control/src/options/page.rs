//! Generates the options' reference page, `docs/reference/attach-options.md`, from their table.

use super::{AttachOption, OPTIONS, OptionShape, listed};

const TOP: &str = "\
# Options of attached ports

Made from the table of the crate `netvale-control` (`UPDATE=1 cargo test -p netvale-control --test it options`).

An option has one name: `vnet_hdr` in `options` of [`port.attach`](control-protocol.md) and in a `[[port]]` of the \
[configuration file](configuration.md),
`--vnet-hdr` for `netvale attach`. A number that is 0, or a switch that is false, means the same as an option that is \
omitted, unless the
option documents a meaning of 0. The daemon refuses an option that the kind of port does not take, and names it.
";

/// Returns the page, in Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = TOP.to_owned();
    let mut under = None;
    for option in OPTIONS {
        if under.replace(option.heading) != Some(option.heading) {
            let title = option.heading.title().unwrap_or("All ports");
            page += &format!("\n## {title}\n\n| option | value | ports | without it | |\n|---|---|---|---|---|\n");
        }
        page += &row(option);
    }
    page
}

fn row(option: &AttachOption) -> String {
    let ports = option.kinds().map_or_else(|| "all".into(), |kinds| listed(kinds, "and"));
    let default = match (option.default, option.shape) {
        ("", OptionShape::Flag) => "false",
        (default, _) => default,
    };
    let excludes = match option.excludes {
        [] => String::new(),
        keys => format!(" Not with {}: {}.", listed(keys.iter().map(|key| format!("`{key}`")), "or"), option.why),
    };
    format!("| `{}` | {} | {ports} | {default} | {}{excludes} |\n", option.key, option.shape, option.doc())
}
