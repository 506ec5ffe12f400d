//! Links `random.c` and `clock.c` into the program that simulates, and into nothing else.

fn main() {
    let files = ["random.c", "clock.c"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    for object in cc::Build::new().files(files).cargo_metadata(false).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
    // Some look them up by name when they run.
    for function in ["getrandom", "clock_gettime"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={function}");
    }
}
