use super::*;

fn options(seed: u64) -> Options {
    Options {
        seed,
        time: Duration::from_secs(60),
        runs: 50_000,
        failures: PathBuf::new(),
    }
}

fn target(run: fn(&[u8]) -> Features) -> Target {
    Target {
        name: "a_test",
        run,
        seeds: || vec![b"seed".to_vec()],
        len_max: 64,
    }
}

#[test]
fn a_hidden_panic_is_found_made_short_and_found_again() {
    // Three bytes, each of which is a behaviour of its own when the ones before it are right.
    let picky = target(|input| {
        let right = input
            .iter()
            .zip(b"\x00\x7f\xff")
            .take_while(|(a, b)| a == b)
            .count();
        assert!(right < 3, "found it");
        Features::of(u32::try_from(right).unwrap_or_default())
    });
    let first = search(&picky, &options(1)).expect_err("it is there");
    assert_eq!(first.input, b"\x00\x7f\xff");
    assert!(first.message.contains("found it"), "{}", first.message);
    let again = search(&picky, &options(1)).expect_err("it is there");
    assert_eq!(
        again.runs, first.runs,
        "the same seed searches the same way"
    );
}

#[test]
fn what_bears_everything_passes() {
    let meek = target(|input| Features::of(input.first().copied().unwrap_or_default().into()));
    let tally = search(&meek, &options(2)).expect("nothing to find");
    assert_eq!(tally.runs, 50_000);
    assert_eq!(tally.kept, 256, "one input of each kind");
}
