# Everything a fresh machine needs is installed by these targets; see README.md.
SHELL := bash
CARGO ?= cargo
FV := target/debug/fv-catalog
FV_RUN := target/debug/fv-run

.PHONY: run test kernels docs web serve bench deny fuzz

run: ## check the catalog, compile it, preview fastwan21, say whether it fits on two cards, plan MiniMax H3 for this machine, plan and execute a tiny model
	$(CARGO) build --quiet -p fv-catalog -p fv-run
	$(FV) --check
	$(FV) build --out target/catalog
	$(FV) --preview fastwan21
	$(FV) estimate fastwan21 --hardware rtx-4090-24gb
	$(FV) estimate fastwan21 --hardware rtx-3060-12gb
	$(FV_RUN) plan || { code=$$?; [ $$code -eq 4 ] || { [ $$code -eq 3 ] && $(FV_RUN) plan --hardware rtx-4090-24gb --ram-gib 32; }; }
	$(FV_RUN) run --tiny dense --vram-kib 6500 --ram-kib 2600 --out target/tiny
	@echo
	@echo 'The same in a browser: `make serve`, then open http://127.0.0.1:8787/'

test: ## everything that needs no GPU
	tests/run.sh

kernels: ## compile the CUDA kernels for all architectures, into target/kernels; needs no GPU
	UPDATE_KERNELS=1 $(CARGO) test --quiet -p fv-device --lib cuda::arguments
	tests/kernels.sh

docs: ## rewrite generated schemas, compiled data and pages
	$(CARGO) build --quiet -p fv-catalog
	$(FV) schema
	$(FV) build --out crates/fv-data/data
	$(FV) docs
	UPDATE_DOCS=1 $(CARGO) test --quiet -p fv-tests --test finding_pages --test plan_sizes --test contract

web: ## the WebAssembly estimator, its npm package, and the calculator in web/apps/calculator/dist
	web/build.sh

serve: web ## the calculator at http://127.0.0.1:8787/, from the program itself
	$(CARGO) run --quiet -p fv-catalog --features page -- serve

bench: ## benchmarks with their peers; results in target/bench
	$(CARGO) bench --quiet -p fv-catalog
	$(CARGO) bench --quiet -p fv-estimate --bench estimate
	$(CARGO) bench --quiet -p fv-estimate --bench questions
	$(CARGO) bench --quiet -p fv-program
	$(CARGO) bench --quiet -p fv-cli
	tests/bench/run.sh
	web/build.sh
	npm run --silent bench --prefix web/packages/estimator

deny: ## licences and sources of the dependencies
	command -v cargo-deny >/dev/null || $(CARGO) install --quiet --locked cargo-deny
	$(CARGO) deny --offline check bans licenses sources

fuzz: ## fuzz targets; see tests/fuzz/README.md
	command -v cargo-fuzz >/dev/null || $(CARGO) install --quiet cargo-fuzz
	cd tests/fuzz && RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=../../target/fuzz $(CARGO) fuzz run --fuzz-dir . -s none yaml -- -max_total_time=60
	cd tests/fuzz && RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=../../target/fuzz $(CARGO) fuzz run --fuzz-dir . -s none compiled -- -max_total_time=60
	cd tests/fuzz && RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=../../target/fuzz $(CARGO) fuzz run --fuzz-dir . -s none system_files -- -max_total_time=60
	cd tests/fuzz && RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=../../target/fuzz $(CARGO) fuzz run --fuzz-dir . -s none requests -- -max_total_time=60
	cd tests/fuzz && RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=../../target/fuzz $(CARGO) fuzz run --fuzz-dir . -s none plan -- -max_total_time=60
