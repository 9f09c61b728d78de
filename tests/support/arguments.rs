//! The command line of the programs among the tests: options with a value each.

/// Calls `take` with each option and its value. If it returns `None`, for an unknown option or a wrong
/// value, the process prints the usage and ends with status 2.
pub fn each(usage: &str, mut take: impl FnMut(&str, String) -> Option<()>) {
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let wrong = match words.next() {
            None => format!("{word}: no value"),
            Some(value) => {
                let text = format!("{word} {value}: not understood");
                match take(&word, value) {
                    Some(()) => continue,
                    None => text,
                }
            }
        };
        eprintln!("{wrong}\n{usage}");
        std::process::exit(2);
    }
}
