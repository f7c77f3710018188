"""Settings of retrieval for a store, found on a dev set.

tune.py what is called · settings.py those of `knnmt tune` · dev.py and held_out.py the segments that judge ·
references.py what their states find · grid.py the settings that are tried · likelihood.py the coarse search, without
translating · search.py the fine one, by BLEU · gate.py training of λ.
"""
