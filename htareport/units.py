from htareport.render.format import text  # temporary
