//! `gradwire model`: what is listed, shown and refused.

use crate::processes::{errors, file, objects, run};

fn printed(words: &[&str]) -> String {
    let output = run(words);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_listed_model_can_be_shown() {
    let list = objects(&run(&["model", "list", "--json"])).remove(0);
    let list = list.as_array().expect("it is an array").clone();
    assert_eq!(list.len(), 9);
    for model in list {
        let name = model["name"].as_str().expect("a model has a name");
        let shown = objects(&run(&["model", "show", name, "--json"])).remove(0);
        for key in [
            "parameters",
            "bytes",
            "tensors",
            "forward_us",
            "backward_us",
        ] {
            assert_eq!(shown[key], model[key], "{name}: {key}");
        }
        let gradients = shown["gradients"].as_array().expect("it has gradients");
        assert_eq!(model["tensors"], gradients.len(), "{name}");
    }
    let text = printed(&["model", "list"]);
    assert!(text.contains("\nvgg16          138,357,544"), "{text}");
}

#[test]
fn a_table_of_a_user_is_shown_like_a_known_model() {
    let table = "layer,parameters,forward_ns,backward_ns\nfirst,1000,5000,10000\nlast,10,1,2000\n";
    let path = file("mine.csv", table);
    let text = printed(&["model", "show", path.to_str().expect("a plain path")]);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(4)
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["last", "10", "40", "B", "2.0", "0.002", "0.0"]);
    assert_eq!(
        rows[1],
        ["first", "1,000", "4.0", "kB", "10.0", "0.012", "5.0"]
    );
    assert_eq!(rows[2][0], "total");
}

#[test]
fn a_model_that_cannot_be_is_refused_with_its_line_or_a_suggestion() {
    let path = file(
        "wrong.csv",
        "layer,parameters,forward_ns,backward_ns\na,many,1,1\n",
    );
    let path = path.to_str().expect("a plain path");
    let allowed = "line 2: parameters `many`: allowed are whole numbers from 0 to 10^12";
    for (given, said) in [
        (path, format!("error: {path}: {allowed}")),
        ("resnet5", "(did you mean `resnet50`?)".to_owned()),
        ("missing.csv", "cannot read missing.csv: ".to_owned()),
    ] {
        let output = run(&["model", "show", given]);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(&said), "{error}");
    }
}
