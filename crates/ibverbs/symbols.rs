//! Reads `symbols.txt`, the table of exported names and versions; its head explains the format.
//!
//! Shared as a file by `build.rs` (aliases) and `xtask` (version script, comparison), which is why
//! it uses nothing but std. Not here: what the names do.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One name under one version node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) node: String,
    /// The linker binds new programs to it.
    pub(crate) default: bool,
    /// The Rust function behind it if its name differs.
    pub(crate) alias_of: Option<String>,
}

/// The whole table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Version nodes with their parents, parents first.
    pub(crate) nodes: Vec<(String, Option<String>)>,
    pub(crate) symbols: Vec<Symbol>,
}

impl Table {
    /// Reads the table. The error names the line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        let mut section: Vec<String> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |what: &str| Err(format!("symbols.txt:{}: {what}: {line}", number + 1));
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(head) = line.strip_prefix('[') {
                let Some((nodes, parent)) = head.split_once(']') else {
                    return wrong("no closing bracket");
                };
                section = nodes.split_whitespace().map(str::to_owned).collect();
                let parent = parent
                    .trim()
                    .strip_prefix('<')
                    .map(|parent| parent.trim().to_owned());
                table.add_nodes(&section, parent.as_deref());
                continue;
            }
            let (name, alias_of) = match line.split_once('=') {
                Some((name, function)) => (name.trim(), Some(function.trim().to_owned())),
                None => (line, None),
            };
            let (name, hidden) = match name.strip_prefix('-') {
                Some(name) => (name, true),
                None => (name, false),
            };
            if alias_of.is_none() && (hidden || section.len() != 1) {
                return wrong(
                    "needs `= function`: only a default version can be the function itself",
                );
            }
            for (index, node) in section.iter().enumerate() {
                table.symbols.push(Symbol {
                    name: name.to_owned(),
                    node: node.clone(),
                    default: index == 0 && !hidden,
                    alias_of: alias_of.clone(),
                });
            }
        }
        Ok(table)
    }

    fn add_nodes(&mut self, nodes: &[String], parent: Option<&str>) {
        for node in nodes {
            if !self.nodes.iter().any(|(known, _)| known == node) {
                self.nodes.push((node.clone(), parent.map(str::to_owned)));
            }
        }
    }

    /// The linker's version script: nodes, and the names that are functions themselves.
    #[allow(dead_code, reason = "one of the two users of this file")]
    pub(crate) fn version_script(&self) -> String {
        let mut script = String::new();
        // A node that makes anything local also hides the aliases that the assembler put into it,
        // so that one node is chosen which has none.
        let has_alias = |node: &String| {
            self.symbols
                .iter()
                .any(|symbol| symbol.node == *node && symbol.alias_of.is_some())
        };
        let hiding = self.nodes.iter().position(|(node, _)| !has_alias(node));
        for (index, (node, parent)) in self.nodes.iter().enumerate() {
            let _ = writeln!(script, "{node} {{");
            let of_node = |symbol: &&Symbol| symbol.node == *node && symbol.alias_of.is_none();
            for (position, symbol) in self.symbols.iter().filter(of_node).enumerate() {
                let global = if position == 0 { "global:\n" } else { "" };
                let _ = writeln!(script, "{global}\t{};", symbol.name);
            }
            if Some(index) == hiding {
                // Whatever no node names stays inside, above all the Rust standard library.
                script.push_str("local:\n\t*;\n");
            }
            let _ = writeln!(script, "}} {};\n", parent.as_deref().unwrap_or_default());
        }
        script
    }

    /// Assembler text that defines every alias. A versioned alias must be defined in the object
    /// that asks for it, so each function gets a jump of its own here.
    #[allow(dead_code, reason = "one of the two users of this file")]
    pub(crate) fn aliases(&self, jump: &str) -> String {
        let mut by_function: BTreeMap<&str, Vec<&Symbol>> = BTreeMap::new();
        for symbol in &self.symbols {
            if let Some(function) = &symbol.alias_of {
                by_function.entry(function).or_default().push(symbol);
            }
        }
        let mut text = String::new();
        for (function, symbols) in by_function {
            let label = format!("feroce_alias_{function}");
            let body = if function == "false" {
                format!(
                    ".data\n.type {label}, @object\n.size {label}, 1\n{label}:\n.byte 0\n.text\n"
                )
            } else {
                format!(".text\n.type {label}, @function\n{label}:\n{jump} {function}\n")
            };
            let _ = write!(text, ".globl {label}\n{body}");
            for symbol in symbols {
                let at = if symbol.default { "@@" } else { "@" };
                let _ = writeln!(text, ".symver {label}, {}{at}{}", symbol.name, symbol.node);
            }
        }
        text
    }
}
