#!/usr/bin/env bash
# All experiments of docs/paper.md on one GPU, the most important first, several side by side.
#
#     python benchmarks/paper_data.py DATA PREPARED                                    # once, where numba is
#     benchmarks/paper_gpu.sh PREPARED OUT BASE_MODEL                                  # where the GPU is
#     knnmt report OUT/json --bench OUT/bench --out docs/results/report
#
# OUT/json gets a file of results for each domain, model and experiment, as soon as its scores are there; OUT/bench the
# times; OUT/logs what each run said; OUT/paper.tar.gz all of these. A run that fails stops nothing else. Run again, everything goes on where it was.
# Environment: DEVICE (cuda), SECONDS_LEFT (600, for all of it), PARALLEL (8), KNNMT (the command), CONFIGS (configs),
# PART (all; or «quality» or «speed» alone).
set -u
prepared=$(realpath "$1") out=$2 base=${3:-}
mkdir -p "$out/json" "$out/bench" "$out/logs" "$out/runs"
out=$(realpath "$out")
export prepared out
export DEVICE=${DEVICE:-cuda} KNNMT=${KNNMT:-knnmt} CONFIGS=${CONFIGS:-configs}
deadline=$(($(date +%s) + ${SECONDS_LEFT:-600}))
export deadline

left() { echo $((deadline - $(date +%s))); }

run() { # experiment, domain or variant, model: one process
    local experiment=$1 domain=$2 model=$3
    local name="$experiment-$(basename "$model")-$domain"
    local place="$out/runs/$name" time
    for file in "$prepared"/matches/"$domain".json "$prepared"/matches/"$domain"-*.json; do
        [ -e "$file" ] || continue
        local store; store=$(basename "$file" .json)
        [ -e "$place/$store/matches.json" ] && continue
        mkdir -p "$place/$store" && cp "$file" "$place/$store/matches.json"
    done
    time=$(left)
    [ "$time" -gt 5 ] || { echo "no time left" >"$out/logs/$name.log"; return 0; }
    timeout "$time" $KNNMT reproduce "$CONFIGS/$experiment.toml" --data "$prepared" --out "$place" --only "$domain" \
        --model "$model" --no-report --device "$DEVICE" --precision float32 --jobs 2 --threads 2 \
        >"$out/logs/$name.log" 2>&1
    echo "exit $? after $(($(date +%s) - (deadline - ${SECONDS_LEFT:-600}))) s" >>"$out/logs/$name.log"
    [ -e "$place/results.json" ] && cp "$place/results.json" "$out/json/$name.json"
    # of a store of which nothing more is asked, only the figures stay
    [ "$experiment" = quick ] || rm -rf "$place"/*/store
    return 0
}
export -f run left

jobs_in_order() {
    local mini=mini-de-en
    for domain in it bible koran subtitles; do echo "quick $domain $mini"; done
    [ -n "$base" ] && for domain in it bible koran subtitles; do echo "quick $domain $base"; done
    for variant in m2048 knn cosine m512; do
        for domain in it bible koran subtitles; do echo "published $domain-$variant $mini"; done
    done
    for domain in koran it subtitles bible; do echo "sizes $domain $mini"; done
    [ -n "$base" ] && for variant in m2048 knn cosine m512; do
        for domain in koran subtitles bible it; do echo "published $domain-$variant $base"; done
    done
    for domain in koran bible subtitles it; do echo "clusters $domain $mini"; done
    for variant in exact output cleaned; do
        for domain in koran subtitles bible it; do echo "published $domain-$variant $mini"; done
    done
}

speed() { # alone on the machine: what runs beside would be timed too
    mkdir -p "$out/runs/bench"
    local store="$out/runs/bench/store" text="$prepared/koran/test.de" time
    timeout "$(left)" $KNNMT build "$prepared/koran/train" --langs de-en --out "$store" --model mini-de-en \
        --alignments "$prepared/koran/train.links" --k-max 512 --device "$DEVICE" --precision float32 \
        >"$out/logs/bench-build.log" 2>&1
    local common="--store $store --systems base,fast,fast-clustered,faster,faster-exact,similar,knn -c 64 --pairs 3
        --no-first-pass --device $DEVICE"
    local texts=${BENCH_SEGMENTS:-256}
    bench() { # name, options
        local name=$1; shift
        time=$(left)
        [ "$time" -gt 5 ] && timeout "$time" $KNNMT bench "$text" $common "$@" --output "$out/bench/$name.json" \
            >"$out/logs/bench-$name.log" 2>&1
    }
    bench k --segments "$texts" --batch-size 64 --sweep k=8,16,32,64,128,256,512
    bench length --segments "$texts" --batch-size 64 --sweep length=10,20,40,80,120
    bench batch --segments "$texts" --sweep batch-size=1,4,16,64,256
    bench c --segments "$texts" --batch-size 64 --sweep c=16,64,256,512
    bench memory --segments "$texts" --memory "${BENCH_MEMORY:-4096}"
}

part=${PART:-all}
if [ "$part" != speed ]; then
    jobs_in_order | xargs -P "${PARALLEL:-8}" -L 1 bash -c 'run "$@"' run
    # what failed, for want of memory say, once more with fewer beside it
    jobs_in_order | while read -r experiment domain model; do
        grep -q "^exit 0" "$out/logs/$experiment-$(basename "$model")-$domain.log" || echo "$experiment $domain $model"
    done | xargs -r -P 2 -L 1 bash -c 'run "$@"' run
fi
[ "$part" = quality ] || speed
for place in "$out"/runs/*/; do # what a run that was stopped had
    name=$(basename "$place")
    [ -e "$place/results.json" ] && cp "$place/results.json" "$out/json/$name.json"
done
tar -C "$out" -czf "$out/paper.tar.gz" json bench logs
ls -la "$out/json" "$out/bench" "$out/paper.tar.gz"
grep -L "exit 0" "$out"/logs/*.log | grep -v bench || true
