"""The generated parts of the pages: each function returns Markdown made from the code itself."""
