"""Types of files by their content, by magika: inputs are lists of lists of integers."""

import json

from magika import Magika

contents = [
    b"import sys\n\n\ndef main(argv):\n    return len(argv)\n\n\nsys.exit(main(sys.argv))\n" * 4,
    b'#include <stdio.h>\nint main(void) { printf("%d\\n", 42); return 0; }\n' * 4,
    b"# Title\n\nSome *text* with a [link](https://example.org).\n\n* one\n* two\n" * 4,
    b"<html><head><title>x</title></head><body><p>text</p></body></html>\n" * 4,
]
magika = Magika()
results = [magika.identify_bytes(content) for content in contents]
print(json.dumps([[result.output.label, float(result.score)] for result in results]))
