//! Are the structs and constants of `crates/verbs-abi` those of the C headers here? A C program
//! prints what the compiler makes of each size, offset and value; the crate's own numbers are
//! compared with that. The crate's numbers are true of the crate because it asserts them.
//!
//! The headers may be older than the crate (rdma-core 44 and later): what `later.txt` lists is
//! looked for one by one and may be missing, anything else must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Report;
use crate::cargo;

/// The sizes and offsets of every generated type, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) types: Vec<(String, Item)>,
}

/// One struct or union. All numbers in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) fields: Vec<(String, usize)>,
}

impl Layout {
    /// Reads the asserts that bindgen writes: `["Offset of field: a::b"] [… - 8usize] ;`.
    #[cfg(feature = "regenerate")]
    pub(crate) fn from_asserts(blocks: &[String]) -> Result<Self> {
        let mut layout = Self::default();
        for block in blocks {
            let (mut name, mut item) = (String::new(), Item::default());
            for assert in block.split(';').filter(|line| line.contains("[\"")) {
                let words = assert.split('"').nth(1).context("no quoted text")?;
                let number = assert
                    .rsplit(" - ")
                    .next()
                    .and_then(|tail| tail.split("usize").next());
                let number = number.context("no number")?.trim().parse()?;
                if let Some(of) = words.strip_prefix("Size of ") {
                    (name, item.size) = (of.to_owned(), number);
                } else if words.starts_with("Alignment of ") {
                    item.align = number;
                } else if let Some((_, field)) = words.rsplit_once("::") {
                    item.fields.push((field.to_owned(), number));
                }
            }
            ensure!(item.align > 0, "no alignment in {block}");
            layout.types.push((name, item));
        }
        Ok(layout)
    }

    /// Reads `layout.rs`: `layout!(NAME: SIZE, ALIGN { FIELD: OFFSET, … });`.
    fn from_source(text: &str) -> Result<Self> {
        let mut layout = Self::default();
        for entry in text.split("layout!(").skip(1) {
            let (head, fields) = entry.split_once('{').context("no brace in layout.rs")?;
            let (name, numbers) = head.split_once(':').context("no name in layout.rs")?;
            let (size, align) = numbers.split_once(',').context("no size in layout.rs")?;
            let (size, align) = (size.trim().parse()?, align.trim().parse()?);
            let fields = fields
                .split_once('}')
                .context("no closing brace in layout.rs")?
                .0;
            let fields = fields
                .split(',')
                .filter_map(|field| field.split_once(':'))
                .map(|(name, offset)| Ok((name.trim().to_owned(), offset.trim().parse()?)))
                .collect::<Result<_>>()?;
            layout.types.push((
                name.trim().to_owned(),
                Item {
                    size,
                    align,
                    fields,
                },
            ));
        }
        Ok(layout)
    }
}

/// What `bindings.rs` says about the shape of types: enough to spell them in C.
#[derive(Debug, Default)]
struct Shapes {
    unions: BTreeSet<String>,
    /// (type, field) -> the unnamed C type of the field.
    nested: BTreeMap<(String, String), String>,
}

impl Shapes {
    fn from_source(text: &str) -> Self {
        let mut shapes = Self::default();
        let mut inside = String::new();
        // A field too long for its line is broken after the colon.
        for line in text.replace(":\n        ", ": ").lines() {
            if let Some(name) = line.strip_prefix("pub struct ") {
                inside = first_word(name);
            } else if let Some(name) = line.strip_prefix("pub union ") {
                inside = first_word(name);
                shapes.unions.insert(inside.clone());
            } else if let Some((field, kind)) = line
                .strip_prefix("    pub ")
                .and_then(|field| field.split_once(": "))
            {
                let kind = kind.trim_end_matches(',');
                if kind.contains("__bindgen_ty_") {
                    shapes
                        .nested
                        .insert((inside.clone(), field.to_owned()), kind.to_owned());
                }
            }
        }
        shapes
    }

    /// `struct NAME` or `union NAME`.
    fn in_c(&self, name: &str) -> String {
        format!(
            "{} {name}",
            if self.unions.contains(name) {
                "union"
            } else {
                "struct"
            }
        )
    }
}

fn first_word(text: &str) -> String {
    text.chars()
        .take_while(|&character| character == '_' || character.is_alphanumeric())
        .collect()
}

/// One number that C and the crate must agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    /// As `later.txt` names it: `TYPE`, `TYPE.FIELD` or `CONSTANT`.
    name: String,
    /// The C expression.
    expression: String,
    value: i128,
}

pub(super) fn check(include: &str, report: &mut Report) -> Result<()> {
    const WHAT: &str = "struct layouts and constants equal the C headers";
    if !Path::new(include).join("infiniband/verbs.h").exists() {
        report.skip(format!(
            "{WHAT}: {include}/infiniband/verbs.h is absent (package libibverbs-dev)"
        ));
        return Ok(());
    }
    if !cfg!(target_arch = "x86_64") {
        report.skip(format!(
            "{WHAT}: the crate's numbers are written down for x86-64"
        ));
        return Ok(());
    }
    let source = cargo::workspace().join("crates/verbs-abi");
    let read = |name: &str| fs::read_to_string(source.join(name)).context(name.to_owned());
    let later_text = read("later.txt")?;
    let later = Later::parse(&later_text);
    let bindings = read("src/bindings.rs")?;
    let layout = Layout::from_source(&read("src/layout.rs")?)?;
    let mut claims = struct_claims(&layout, &Shapes::from_source(&bindings));
    claims.extend(constant_claims(&bindings)?);
    claims.extend(constant_claims(&read("src/constants.rs")?)?);

    let probe = Probe::new(include)?;
    let (newer, mut known): (Vec<_>, Vec<_>) = claims
        .into_iter()
        .partition(|claim| later.contains(&claim.name));
    let (present, absent): (Vec<_>, Vec<_>) = newer.into_iter().partition(|claim| {
        probe
            .compiles(std::slice::from_ref(claim))
            .is_ok_and(|compiles| compiles)
    });
    known.extend(present);
    let absent: BTreeSet<_> = absent.into_iter().map(|claim| claim.name).collect();

    let faults_before = report.faults.len();
    compare(&known, &absent, &later, &probe.values(&known)?, report);
    let what = format!(
        "{WHAT} of {include}: {} numbers; {} newer than these headers",
        known.len(),
        absent.len()
    );
    report.conclude(faults_before, &what);
    Ok(())
}

/// The names that rdma-core 44 lacks.
struct Later<'a>(BTreeSet<&'a str>);

impl<'a> Later<'a> {
    fn parse(text: &'a str) -> Self {
        let lines = text.lines().map(str::trim);
        Self(
            lines
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .collect(),
        )
    }

    /// Whether the name, or the type that it is a field of, is listed.
    fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
            || name
                .split_once('.')
                .is_some_and(|(outer, _)| self.0.contains(outer))
    }
}

fn compare(
    claims: &[Claim],
    absent: &BTreeSet<String>,
    later: &Later<'_>,
    values: &[i128],
    report: &mut Report,
) {
    // A struct that grew is smaller here; one that grew at its front has its fields nearer to it.
    let grown: BTreeMap<_, _> = claims
        .iter()
        .zip(values)
        .filter(|(claim, _)| absent.iter().any(|name| is_field_of(name, &claim.name)))
        .map(|(claim, &value)| (claim.name.as_str(), (claim.value, value)))
        .collect();
    for (claim, &value) in claims.iter().zip(values) {
        let outer = claim
            .name
            .split_once('.')
            .map_or(claim.name.as_str(), |(outer, _)| outer);
        let fits = match grown.get(outer) {
            Some(&(ours, theirs)) if claim.name == outer => theirs <= ours,
            Some(&(ours, theirs)) if GROWS_UPWARDS.contains(&outer) => {
                theirs - value == ours - claim.value
            }
            Some(_) | None => value == claim.value,
        };
        if !fits {
            report.fault(format!(
                "{}: C says {value}, the crate {}",
                claim.name, claim.value
            ));
        }
    }
    for name in &later.0 {
        let known = claims.iter().map(|claim| &claim.name).chain(absent);
        if !known.into_iter().any(|known| known == name) {
            report.fault(format!(
                "later.txt lists {name}, which the crate does not have"
            ));
        }
    }
}

/// New fields of these go to the front; offsets count from the end.
const GROWS_UPWARDS: [&str; 1] = ["verbs_context"];

fn is_field_of(name: &str, outer: &str) -> bool {
    name.strip_prefix(outer)
        .is_some_and(|rest| rest.starts_with('.'))
}

fn struct_claims(layout: &Layout, shapes: &Shapes) -> Vec<Claim> {
    let items: BTreeMap<_, _> = layout
        .types
        .iter()
        .map(|(name, item)| (name, item))
        .collect();
    let mut claims = Vec::new();
    for (name, item) in &layout.types {
        if name.contains("__bindgen_ty_") || item.size == 0 {
            continue;
        }
        let c_name = shapes.in_c(name);
        claims.push(Claim {
            name: name.clone(),
            expression: format!("sizeof({c_name})"),
            value: item.size as i128,
        });
        let mut fields = Vec::new();
        flatten(name, "", 0, &items, shapes, &mut fields);
        for (path, offset) in fields {
            let expression = format!("offsetof({c_name}, {path})");
            claims.push(Claim {
                name: format!("{name}.{path}"),
                expression,
                value: offset as i128,
            });
        }
    }
    claims
}

/// Every field that has a name in C, also inside unnamed structs and unions.
fn flatten(
    name: &String,
    prefix: &str,
    base: usize,
    items: &BTreeMap<&String, &Item>,
    shapes: &Shapes,
    fields: &mut Vec<(String, usize)>,
) {
    let Some(item) = items.get(name) else { return };
    for (field, offset) in &item.fields {
        let anonymous = field.starts_with("__bindgen_anon_");
        let spelled = match field.as_str() {
            // Words that Rust reserves got an underscore.
            "priv_" | "type_" => field.trim_end_matches('_'),
            _ => field,
        };
        let path = if anonymous {
            prefix.to_owned()
        } else {
            format!("{prefix}{spelled}")
        };
        if !anonymous {
            fields.push((path.clone(), base + offset));
        }
        if let Some(nested) = shapes.nested.get(&(name.clone(), field.clone())) {
            let prefix = if anonymous { path } else { format!("{path}.") };
            flatten(nested, &prefix, base + offset, items, shapes, fields);
        }
    }
}

/// The integer constants of a source file: `pub const NAME: TYPE = NUMBER;`.
fn constant_claims(text: &str) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    // A value too long for its line is broken after the sign.
    for line in text.replace(" =\n    ", " = ").lines() {
        let Some((name, rest)) = line
            .strip_prefix("pub const ")
            .and_then(|c| c.split_once(": "))
        else {
            continue;
        };
        let value = rest
            .split_once(" = ")
            .context("a constant without value")?
            .1;
        let value = value.trim_end_matches(';').replace('_', "");
        let number = match value.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16),
            None => value.parse(),
        };
        // Pointers are not integers; there are two, `usize::MAX as *mut c_void`.
        if let Ok(value) = number {
            claims.push(Claim {
                name: name.to_owned(),
                expression: name.to_owned(),
                value,
            });
        }
    }
    Ok(claims)
}

/// Compiles and runs small C programs against one set of headers.
struct Probe {
    folder: PathBuf,
    include: String,
}

impl Probe {
    fn new(include: &str) -> Result<Self> {
        let folder = cargo::target_folder()?.join("feroce/abi");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self {
            folder,
            include: include.to_owned(),
        })
    }

    fn compile(&self, claims: &[Claim], object_only: bool) -> Result<std::process::Output> {
        let mut program = String::from(
            "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
             #include <infiniband/sa.h>\n#include <rdma/ib_user_sa.h>\n\
             #include <rdma/ib_user_verbs.h>\n#include <rdma/rdma_cma.h>\n\
             #include <rdma/rsocket.h>\nint main(void)\n{\n",
        );
        for claim in claims {
            // Both signs survive: a C constant is an int, an unsigned int or 64 bits wide.
            let _ = writeln!(
                program,
                "\tprintf(\"%lld\\n\", (long long)({}));",
                claim.expression
            );
        }
        program.push_str("\treturn 0;\n}\n");
        let source = self.folder.join("layout.c");
        fs::write(&source, program)?;
        let mut compiler = Command::new("cc");
        compiler
            .arg("-I")
            .arg(&self.include)
            .arg("-w")
            .arg("-o")
            .arg(self.folder.join("layout"));
        if object_only {
            compiler.arg("-fsyntax-only");
        }
        compiler.arg(source).output().context("cc")
    }

    fn compiles(&self, claims: &[Claim]) -> Result<bool> {
        Ok(self.compile(claims, true)?.status.success())
    }

    fn values(&self, claims: &[Claim]) -> Result<Vec<i128>> {
        let output = self.compile(claims, false)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "the C compiler does not know what the crate has:\n{errors}"
        );
        let output = Command::new(self.folder.join("layout"))
            .output()
            .context("the C probe")?;
        let values = String::from_utf8(output.stdout)?;
        values
            .lines()
            .map(|line| line.parse().context("the C probe's output"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: &str = "layout!(a: 16, 8 { x: 0, __bindgen_anon_1: 8, });\n\
                          layout!(a__bindgen_ty_1: 8, 8 { y: 0, z: 4, });\n";
    const BINDINGS: &str = "pub struct a {\n    pub x: u64,\n    pub __bindgen_anon_1: \
                            a__bindgen_ty_1,\n}\npub struct a__bindgen_ty_1 {\n    pub y: u32,\n}\n\
                            pub const IBV_B: u32 = 7;\n";

    fn claims() -> Vec<Claim> {
        let layout = Layout::from_source(LAYOUT).unwrap();
        struct_claims(&layout, &Shapes::from_source(BINDINGS))
    }

    #[test]
    fn unnamed_members_are_looked_through() {
        let fields: Vec<_> = claims()
            .into_iter()
            .map(|claim| (claim.name, claim.value))
            .collect();
        let expected = [("a", 16), ("a.x", 0), ("a.y", 8), ("a.z", 12)];
        assert_eq!(
            fields,
            expected.map(|(name, value)| (name.to_owned(), value))
        );
    }

    #[test]
    fn constants_are_read_from_source() {
        let constants = constant_claims(BINDINGS).unwrap();
        assert_eq!(constants.len(), 1);
        assert_eq!(
            (constants[0].name.as_str(), constants[0].value),
            ("IBV_B", 7)
        );
    }

    #[test]
    fn a_moved_field_is_a_fault() {
        let mut report = Report::default();
        compare(
            &claims(),
            &BTreeSet::new(),
            &Later::parse(""),
            &[16, 0, 8, 8],
            &mut report,
        );
        assert_eq!(report.faults, ["a.z: C says 8, the crate 12"]);
    }

    #[test]
    fn a_struct_may_have_grown_but_not_moved_its_fields() {
        let mut known = claims();
        known.pop();
        let absent = BTreeSet::from(["a.z".to_owned()]);
        let later_text = "# comment\na.z\n";
        let mut report = Report::default();
        compare(
            &known,
            &absent,
            &Later::parse(later_text),
            &[12, 0, 8],
            &mut report,
        );
        assert_eq!(report.faults, Vec::<String>::new());
        compare(
            &known,
            &absent,
            &Later::parse(later_text),
            &[12, 4, 8],
            &mut report,
        );
        assert_eq!(report.faults, ["a.x: C says 4, the crate 0"]);
    }
}
