use super::source::Function;
use super::*;

fn files(files: &[(&str, &str)]) -> Files {
    files
        .iter()
        .map(|&(path, text)| (path.to_owned(), text.to_owned()))
        .collect()
}

/// `path rule number line` of every offence.
fn offences(input: &[(&str, &str)]) -> Vec<String> {
    let line = |((path, rule), extent): (&(String, Rule), &Extent)| {
        format!("{path} {rule} {} {}", extent.number, extent.line)
    };
    check(&files(input)).iter().map(line).collect()
}

#[test]
fn functions_are_measured_through_strings_comments_and_lifetimes() {
    let source = Source::new(
        r##"
fn short<'a>(x: &'a [u8; 4]) -> char { '{' }
trait T { fn declared(&self); }
fn long() {
    let _ = "}"; // }
    let _ = r#"}"}"#; /* } /* } */ } */
    let _ = ('\'', '}', b'}', "\"}");
    let _: fn(u8) -> u8 = later;
}
"##,
    );
    let function = |name: &str, first_line, lines| Function {
        name: name.to_owned(),
        first_line,
        lines,
    };
    assert_eq!(
        source.functions(),
        [function("short", 2, 1), function("long", 4, 6)]
    );
}

#[test]
fn a_long_function_and_a_long_file_are_named() {
    let body = "    call();\n".repeat(FUNCTION_LINES_MAX - 1);
    let long = format!("\nfn long() {{\n{body}}}\n");
    assert_eq!(offences(&[("a.rs", &long)]), ["a.rs function:long 71 2"]);

    let file = "// a line\n".repeat(FILE_LINES_MAX);
    assert!(offences(&[("a.rs", &file)]).is_empty());
    let file = file + "// one more\n";
    assert_eq!(offences(&[("a.rs", &file)]), ["a.rs file 601 1"]);
}

#[test]
fn tests_do_not_count_as_lines_of_a_file() {
    let code = "// a line\n".repeat(FILE_LINES_MAX - 2);
    let lines = "// a line\n".repeat(FILE_LINES_MAX + 1);
    let inline = format!("{code}#[cfg(test)]\nmod tests {{\n{lines}}}\n");
    let parent = format!("{code}#[cfg(test)]\npub(crate) mod testing;\n");
    let input = [
        ("crates/x/src/inline.rs", &*inline),
        ("crates/x/src/a.rs", &*parent),
        ("crates/x/src/a/testing.rs", &*lines),
        ("crates/x/src/a/testing/deeper.rs", &*lines),
        ("crates/x/tests/all.rs", &*lines),
    ];
    assert!(offences(&input).is_empty(), "{:?}", offences(&input));
    let elsewhere = [("crates/x/src/testing.rs", &*lines)];
    assert_eq!(offences(&elsewhere).len(), 1);
}

#[test]
fn generated_files_keep_their_form() {
    let wide = format!(
        "// Written by a program. {GENERATED}.\n// {}\n",
        "x".repeat(200)
    );
    assert!(offences(&[("a.rs", &wide)]).is_empty());
    let wide = wide.replace(GENERATED, "Do edit");
    assert_eq!(offences(&[("a.rs", &wide)]), ["a.rs line 1 2"]);
}

#[test]
fn spaces_tabs_and_machine_paths() {
    let path = format!("see {}thing", MACHINE_PATHS[0]);
    let text = format!("clean\n\tindented\nends \n{path}\n{path}\n");
    let expected = [
        "notes.md tab 1 2",
        "notes.md space 1 3",
        "notes.md path 2 4",
    ];
    assert_eq!(offences(&[("notes.md", &text)]), expected);
    assert!(
        offences(&[("table.tsv", "a\tb \n")]).is_empty(),
        "data has its own form"
    );
}

#[test]
fn unsafe_is_fenced() {
    let text = "// unsafe in a comment\n#![forbid(unsafe_code)]\nunsafe fn f() {}\n";
    assert_eq!(
        offences(&[("crates/wire/src/a.rs", text)]),
        ["crates/wire/src/a.rs unsafe 1 3"]
    );
    assert!(offences(&[("crates/netio/src/sys/a.rs", text)]).is_empty());
    assert_eq!(offences(&[("crates/netio/src/system.rs", text)]).len(), 1);
}

#[test]
fn the_allow_list_only_shrinks() {
    let found = |number| {
        let key = ("a.rs".to_owned(), Rule::Function("f".to_owned()));
        Offences::from([(key, Extent { number, line: 3 })])
    };
    let allowed = Allowed::parse("# head\n\na.rs function:f 90\n").unwrap();
    assert!(allowed.complaints(&found(90), false).is_empty());
    assert_eq!(
        allowed.complaints(&found(91), false),
        ["a.rs:3: 91 lines of function f, 70 at most [function:f]"]
    );
    assert!(allowed.complaints(&found(80), false)[0].contains("is 80 now"));
    assert!(allowed.complaints(&Offences::new(), false)[0].contains("holds now"));

    assert_eq!(
        allowed.shrunk(&found(80)).to_string(),
        format!("{ALLOW_HEAD}a.rs function:f 80\n")
    );
    assert_eq!(
        allowed.shrunk(&found(91)).to_string(),
        format!("{ALLOW_HEAD}a.rs function:f 90\n")
    );
    assert_eq!(allowed.shrunk(&Offences::new()).to_string(), ALLOW_HEAD);
    assert!(Allowed::parse("a.rs lines 3").is_err());
}
