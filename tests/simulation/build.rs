//! Links `random.c` into the program that simulates, and into nothing else.

fn main() {
    println!("cargo:rerun-if-changed=random.c");
    for object in cc::Build::new().file("random.c").cargo_metadata(false).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
    // Some look it up by name when they run.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
}
