"""Charts as SVG and as Plotly figures."""
